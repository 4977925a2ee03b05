module github.com/headgate/headgate/examples/chi

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/headgate/headgate v0.0.0
)

require github.com/gaissmai/bart v0.30.0 // indirect

replace github.com/headgate/headgate => ../../
