// Command headway collects from APIs that it does not own as fast as they let
// it, never faster, and loses nothing on the way. All of it is package cli.
package main

import (
	"os"

	"github.com/headway-go/headway/internal/cli"
)

// version is set by the linker in released builds.
var version string

func main() { os.Exit(cli.Main(version)) }
