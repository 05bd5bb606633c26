// CoreDNS with the plugins that the test bed uses, a few of about fifty: the others would take most of the build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// In the order in which a query passes them.
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
