module github.com/headgate/headgate/middleware/echolimit

go 1.26.0

require github.com/headgate/headgate v0.0.0

require (
	github.com/gaissmai/bart v0.30.0 // indirect
	github.com/labstack/echo/v5 v5.3.1
)

replace github.com/headgate/headgate => ../../
