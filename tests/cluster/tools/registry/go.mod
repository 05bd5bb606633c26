// Builds the test bed's registry of images.
module weir.dev/tests/cluster/registry

go 1.25.0

require github.com/google/go-containerregistry v0.22.1
