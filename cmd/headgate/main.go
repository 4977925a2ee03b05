// Command headgate runs the rate limiter as a server, with an HTTP API and a
// reverse proxy, and has tools for rules and logs. Run headgate help.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // for timezone: in rules on machines without zones, such as containers

	"github.com/headgate/headgate/internal/app"
)

func main() {
	app.LogPackages()
	os.Exit(run(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
