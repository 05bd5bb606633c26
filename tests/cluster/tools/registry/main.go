// A registry of images that keeps what it is given in memory: the test bed's stand-in for one of the user's.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: registry ADDRESS:PORT")
	}
	server := &http.Server{Addr: os.Args[1], Handler: registry.New(), ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
