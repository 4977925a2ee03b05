# The two commands to know: make run, make test. All of them: make help.

BIN      := bin/headgate
GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
FUZZTIME ?= 10s
ROUNDS   ?= 5
# What headgate version says: a description, the commit and when it was made.
STAMP    := $(shell git describe --tags --always --dirty 2>/dev/null && git log -1 --format='%H %cI' 2>/dev/null)
OPS      ?= 1000000
SPELLINGS ?= 20000
REQUESTS ?= 120000
DURATION ?= 1h
SEED     ?= 0
LEAST    ?= 0
# Modules of their own, with what only their users depend on.
ADAPTERS := ginlimit echolimit fiberlimit examples/chi
MODULES  := . benchmarks chaos differential/envoy $(ADAPTERS)
# Packages that count milliseconds are tested one after the other.
TIMED    := /store/redis /store/failsafe /internal/testkit/redistest /internal/app /door/resp
# A test that fails is run once more, and named at the end (docs/decisions/0087);
# a data race, or more than three that fail, ends the run.
AGAIN    := $(TOOL) gotestsum --format pkgname --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race

.DEFAULT_GOAL := help
.PHONY: run test test-long spellings chaos chaos-short mutants web web-static web-test web-check build lint fmt vet vuln tidy-check differential envoy-differential fuzz bench doors lab vectors proto proto-check clean help

run: build ## build, then start the quickstart: a proxy on :8000 before a demo backend, the API on :8080
	$(BIN) quickstart

test: ## install what is missing, run every test with the race detector, compile and try the benchmarks
	@scripts/ensure.sh $(GO) gcc redis-server valkey-server promtool nginx caddy haproxy curl
	@scripts/ensure-web.sh node && scripts/ensure-express.sh && { scripts/ensure.sh php || true; }
	HEADGATE_REQUIRE_REDIS=1 HEADGATE_REQUIRE_PROXIES=1 $(AGAIN) --packages="$$($(GO) list ./... | grep -v $(TIMED:%=-e %) | tr '\n' ' ')" -- -race -shuffle=on -timeout 30m
	HEADGATE_REQUIRE_REDIS=1 HEADGATE_REQUIRE_PROXIES=1 $(AGAIN) --packages="$$($(GO) list ./... | grep $(TIMED:%=-e %) | tr '\n' ' ')" -- -race -shuffle=on -timeout 30m -p 1
	$(AGAIN) --packages="$$(grep -rl --include='*_test.go' '^//go:build !race' . | xargs -n1 dirname | sort -u | tr '\n' ' ')" -- -shuffle=on
	@for module in $(ADAPTERS); do (cd $$module && $(GO) test -race -shuffle=on ./...) || exit 1; done
	cd differential/envoy && $(GO) test .
	cd benchmarks && $(GO) test -short -bench . -benchtime 1x ./...
	@$(MAKE) --no-print-directory chaos-short

test-long: ## the random tests again, with many times as many cases (an hour or so)
	$(GO) test -race -timeout 2h ./algorithm -runs 2000
	$(GO) test -race -timeout 2h $$(grep -rl --include='*_test.go' pgregory.net/rapid . | xargs -n1 dirname | sort -u) -rapid.checks 20000

chaos: ## break processes, clocks and wires for DURATION (1h), and check what callers were answered; SEED=n draws the same again
	@scripts/ensure.sh $(GO) gcc redis-server
	cd chaos && $(GO) test -shuffle=on ./history ./mutants
	cd chaos && HEADGATE_REQUIRE_REDIS=1 $(GO) test -v -timeout 0 . -args -chaos.for $(DURATION) -chaos.seed $(SEED)

chaos-short: ## the same for a minute, as a part of make test
	@$(MAKE) --no-print-directory chaos DURATION=50s || { \
	  echo "chaos: once more, as a machine that stood still may have confused the checker; look at the history that was saved"; \
	  $(MAKE) --no-print-directory chaos DURATION=50s; }

mutants: ## change the core's code in hundreds of places, one by one, and see whether its tests notice
	cd chaos && $(GO) run ./mutants -least 97 ../algorithm -- -runs 10
	cd chaos && $(GO) run ./mutants -least 97 ../internal/decide/engine
	cd chaos && $(GO) run ./mutants -least 97 ../internal/door/answer
	cd chaos && $(GO) run ./mutants -least $(LEAST) -every 5 ../store/memory

web: ## make internal/door/admin/dashboard/dist, the pages of the admin door, from web/ (needs Node)
	scripts/web.sh build

web-static: ## make dist/playground, the playground alone, for a file server or none
	scripts/web.sh static

web-test: build ## test the pages in Chromium, with the binary just built
	HEADGATE_BIN=$(CURDIR)/$(BIN) scripts/web.sh browser

web-check: ## types, lint and tests of web/, and whether internal/door/admin/dashboard/dist is what it gives
	scripts/web.sh check

build: ## build the static binary bin/headgate
	@scripts/ensure.sh $(GO)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X "main.stamp=$(STAMP)"' -o $(BIN) ./cmd/headgate

lint: vet ## vet, golangci-lint and gofumpt, in the versions of tools/go.mod
	$(TOOL) golangci-lint run ./...
	@for module in $(ADAPTERS); do (cd $$module && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./...) || exit 1; done
	@unformatted=$$($(TOOL) gofumpt -l -extra=group_params $(MODULES)); \
	  if [ -n "$$unformatted" ]; then echo "not gofumpt-clean (make fmt):"; echo "$$unformatted"; exit 1; fi

vet: ## go vet in every module
	@for module in $(MODULES); do (cd $$module && $(GO) vet ./...) || exit 1; done

fmt: ## format everything: gofumpt, and imports in three groups
	$(TOOL) golangci-lint fmt ./...
	$(TOOL) gofumpt -w -extra=group_params benchmarks

vuln: ## look for known vulnerabilities in what is built and tested (asks vuln.go.dev)
	@for module in $(MODULES); do (cd $$module && $(GO) tool -modfile=$(CURDIR)/tools/go.mod govulncheck ./...) || exit 1; done

tidy-check: ## fail if a go.mod or go.sum is not what go mod tidy would write
	@for module in $(MODULES); do (cd $$module && $(GO) mod tidy -diff) || exit 1; done

spellings: ## send SPELLINGS (20,000) spellings of paths and of values to Express, Fastify, Go, PHP and nginx, behind Headgate; make test sends 300
	@scripts/ensure.sh $(GO) nginx
	@scripts/ensure-web.sh node && scripts/ensure-express.sh && { scripts/ensure.sh php || true; }
	$(GO) test ./internal/app -run '^TestNoSpelling' -v -timeout 1h -args -spellings=$(SPELLINGS)

differential: ## compare Lua in Redis with Go over OPS (1,000,000) random operations; make test does 50,000
	@scripts/ensure.sh $(GO) redis-server
	HEADGATE_REQUIRE_REDIS=1 $(GO) test ./store/redis -run '^TestDifferential$$' -v -args -differential.ops=$(OPS)

envoy-differential: ## put REQUESTS (120,000) random requests to envoyproxy/ratelimit too; make test does 2,000
	@scripts/ensure.sh $(GO) redis-server
	cd differential/envoy && $(GO) test -count=1 -timeout 2h -run '^TestDifferential$$' -v . -requests $(REQUESTS)

fuzz: ## run every fuzz target for FUZZTIME (10s)
	scripts/fuzz.sh $(FUZZTIME)

bench: ## compare with other limiters on this machine, in ROUNDS (5) interleaved rounds
	cd benchmarks && $(GO) run ./cmd/compare --rounds $(ROUNDS)

doors: ## measure what each door costs beside its floor
	cd benchmarks && $(GO) run ./cmd/doors

lab: ## measure how exact the algorithms are, and write the tables of docs/accuracy.md
	GO=$(GO) scripts/accuracy.sh

vectors: ## rewrite algorithm/testdata/vectors from the Go steps
	$(GO) test ./algorithm -run TestVectors -update

proto: ## make the Go code of api/ from its .proto files
	scripts/proto.sh

proto-check: ## fail if it is not what they give (where there is protoc)
	scripts/proto.sh check

clean: ## remove what building leaves behind
	rm -rf bin dist

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
