# Most used: make run, make quick, make test. For the full list: make help.

BIN      := bin/headgate
GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
FUZZTIME ?= 10s
ROUNDS   ?= 5
# What headgate version shows: a description, the commit and its date.
STAMP    := $(shell git describe --tags --always --dirty 2>/dev/null && git log -1 --format='%H %cI' 2>/dev/null)
OPS      ?= 1000000
SPELLINGS ?= 20000
REQUESTS ?= 120000
DURATION ?= 1h
SEED     ?= 0
LEAST    ?= 0
# Separate modules, so that only their users get their dependencies.
ADAPTERS := middleware/ginlimit middleware/echolimit middleware/fiberlimit examples/chi
MODULES  := . benchmarks chaos differential/envoy dist/packaging dist/helm $(ADAPTERS)
LINTED   := . $(ADAPTERS)
# These have nothing of the others, and large dependencies: their tests lint them.
APART    := dist/packaging dist/helm
# Packages with tests that measure milliseconds, or clients that give up after seconds, run
# one at a time. Tests that only wait are parallel: four at a time, after those that measure.
TIMED    := /store/redis /store/failsafe /internal/e2e /door/resp /clients/conformance
ONE      := -p 1 -parallel 4
# Packages whose tests start servers that a bare machine does not have.
SERVED   := /cmd/headgate /internal/queue/streams /internal/operate/setup /internal/testkit/redistest
# Packages where goroutines meet: those in these folders that start some, or whose tests do.
RACED     = $(shell grep -rl --include='*.go' -e '^[[:space:]]*go [a-z]' -e '\.Go\b' -e NewServer -e 'synctest\.' store middleware rulefiles internal/decide internal/door internal/observe internal/queue internal/request internal/transport | sed 's,/[^/]*$$,,; s,^,%/,' | sort -u)
# packages lists all that match none of these, only those that match one.
packages  = $(shell $(GO) list ./... | grep -v $(1:%=-e %))
only      = $(shell $(GO) list ./... | grep $(1:%=-e %))
REQUIRE  := HEADGATE_REQUIRE_REDIS=1 HEADGATE_REQUIRE_PROXIES=1
# No test is run again: one that fails once fails the run (docs/decisions/0087).
TESTS    := $(TOOL) gotestsum --format pkgname
# make lint vets.
ONCE     := -vet=off -shuffle=on -timeout 30m
# A program with the race detector waits a second before it ends: too long for thousands.
export GORACE ?= atexit_sleep_ms=50

.DEFAULT_GOAL := help
.PHONY: run quick needed test test-race race-short faults-short test-all test-long blocks-schedules regions-schedules spellings blocks-faults regions-faults chaos chaos-short mutants web web-static web-test pictures web-check site site-test build lint fmt vet vuln tidy-check differential envoy-differential envoy-integration fuzz bench bench-blocks doors lab vectors formats proto proto-check release release-test chart-test clean help

run: build ## build and start the quickstart: a proxy on :8000 in front of a demo backend, the API on :8080
	$(BIN) quickstart

quick: ## the tests that need no service and no patience, of what has changed: what to run after each change
	$(GO) test -short $(call packages,$(SERVED) $(TIMED))

needed: ## install what the tests need and this machine does not have
	@echo "== 1 of 4: what the tests need"
	@scripts/ensure.sh $(GO) gcc redis-server valkey-server promtool nginx caddy haproxy curl python3
	@scripts/ensure-web.sh node && scripts/ensure-express.sh && scripts/ensure-clients.sh && scripts/ensure-python.sh && scripts/ensure-java.sh && { scripts/ensure.sh php || true; }

test: needed ## install what is missing, and run every test once: about 8 minutes on two cores
	@echo "== 2 of 4: the tests of most packages"
	$(REQUIRE) $(TESTS) --packages="$(call packages,$(TIMED))" -- $(ONCE) -p 3
	@echo "== 3 of 4: the tests that measure milliseconds, one package at a time"
	$(REQUIRE) HEADGATE_REQUIRE_CLIENTS=1 $(TESTS) --packages="$(call only,$(TIMED))" -- $(ONCE) $(ONE)
	@echo "== 4 of 4: the modules with dependencies of their own"
	@for module in $(ADAPTERS) differential/envoy; do (cd $$module && $(GO) test $(ONCE) ./...) || exit 1; done

test-race: ## every test once more, with the race detector (about half an hour)
	@scripts/ensure.sh $(GO) gcc redis-server nginx caddy haproxy curl python3
	$(TESTS) --packages="$(call packages,$(TIMED))" -- -race $(ONCE)
	$(TESTS) --packages="$(call only,$(TIMED))" -- -race $(ONCE) $(ONE)
	@for module in $(ADAPTERS); do (cd $$module && $(GO) test -race $(ONCE) ./...) || exit 1; done

race-short: ## the race detector where goroutines meet, without packages that measure milliseconds: a part of .ci/run
	@scripts/ensure.sh $(GO) gcc redis-server
	CGO_ENABLED=1 $(TESTS) --packages="$(filter $(RACED),$(call packages,$(TIMED)))" -- -race -short $(ONCE)

faults-short: ## some minutes of faults: processes, clocks, connections, blocks and regions
	@$(MAKE) --no-print-directory chaos DURATION=40s MORE="-chaos.blocks 1 -chaos.regions short"

test-all: test test-race envoy-integration chart-test release-test faults-short ## everything: make test and test-race, the tests of envoyproxy/ratelimit, charts, releases, benchmarks once, faults (about an hour)
	$(GO) test -count=1 ./cmd/headgate -run '^Test(Regions|Overload)Example$$' -args -long
	cd benchmarks && $(GO) test -short -bench . -benchtime 1x ./...

test-long: ## run the property tests with many more cases (about an hour)
	$(GO) test -race -timeout 2h ./algorithm -runs 2000
	$(GO) test -race -timeout 2h $$(grep -rl --include='*_test.go' pgregory.net/rapid . | xargs -n1 dirname | sort -u) -rapid.checks 20000

SCHEDULES ?= 1000000
blocks-schedules: ## try to break the bound of blocks with SCHEDULES (1000000) random schedules
	$(GO) test ./store/blocks -run TestNoScheduleAdmitsTooMuch -v -count=1 -timeout 2h -blocks.schedules $(SCHEDULES)

FIRST ?= 1
regions-schedules: ## try to break the bound of regions with SCHEDULES (1000000) random schedules, from number FIRST (1) on
	GOGC=800 $(GO) test ./store/regions -run TestNoScheduleAdmitsTooMuch -v -count=1 -timeout 24h -regions.from $(FIRST) -regions.schedules $(SCHEDULES)

BREAK ?= 20
blocks-faults: ## break four processes, their Redis and their connections BREAK (20) times, and check the bounds of limits in blocks
	@scripts/ensure.sh $(GO) redis-server
	cd chaos && HEADGATE_REQUIRE_REDIS=1 $(GO) test -v -timeout 0 -run TestBlocksUnderFaults . -args -chaos.blocks $(BREAK)

FAULTS ?= all
regions-faults: ## break three regions, their wires, processes and Redis (FAULTS=short: three faults only), and check the bounds of limits that they share
	@scripts/ensure.sh $(GO) redis-server
	cd chaos && HEADGATE_REQUIRE_REDIS=1 $(GO) test -v -timeout 0 -run TestRegionsUnderFaults . -args -chaos.regions $(FAULTS)

chaos: ## break processes, clocks and connections for DURATION (1h) and check all answers; SEED=n repeats a run
	@scripts/ensure.sh $(GO) gcc redis-server
	cd chaos && $(GO) test -shuffle=on ./history ./mutants
	cd chaos && HEADGATE_REQUIRE_REDIS=1 $(GO) test -v -timeout 0 -parallel 6 . -args -chaos.for $(DURATION) -chaos.seed $(SEED) $(MORE)

chaos-short: ## run chaos for 40 seconds
	@$(MAKE) --no-print-directory chaos DURATION=40s

mutants: ## mutation tests: change the core in hundreds of places, one at a time, and check that a test fails
	cd chaos && $(GO) run ./mutants -least 97 ../algorithm -- -runs 10
	cd chaos && $(GO) run ./mutants -least 97 ../internal/decide/engine
	cd chaos && $(GO) run ./mutants -least 97 ../internal/answer
	cd chaos && $(GO) run ./mutants -least $(LEAST) -every 5 ../store/memory

web: ## build the web pages of the admin door from web/ into internal/door/admin/dashboard/dist (needs Node)
	scripts/web.sh build

web-static: ## build the playground as static files into bin/playground
	scripts/web.sh static

web-test: build ## build, and test the web pages in Chromium
	HEADGATE_BIN=$(CURDIR)/$(BIN) scripts/web.sh browser

pictures: build ## take the screenshots in docs/pictures, under load (needs Node and Chromium)
	HEADGATE_BIN=$(CURDIR)/$(BIN) scripts/web.sh pictures

web-check: ## check types, lint and tests of web/, and that internal/door/admin/dashboard/dist is up to date
	scripts/web.sh check

site: ## build the documentation site into bin/site (needs Go and Node)
	scripts/site.sh build

site-test: ## build the documentation site, and test it in Chromium
	scripts/site.sh test

build: ## build the static binary bin/headgate
	@scripts/ensure.sh $(GO)
	@GO=$(GO) scripts/wasm.sh
	CGO_ENABLED=0 $(GO) build -tags grpcnotrace -ldflags '-s -w -X "main.stamp=$(STAMP)"' -o $(BIN) ./cmd/headgate

lint: ## run golangci-lint, which vets too, or vet alone where it is not used, and gofumpt, in the versions of tools/go.mod
	@for module in $(LINTED); do (cd $$module && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./...) || exit 1; done
	@for module in $(filter-out $(LINTED) $(APART),$(MODULES)); do (cd $$module && $(GO) vet ./...) || exit 1; done
	@unformatted=$$($(TOOL) gofumpt -l -extra=group_params $(MODULES)); \
	  if [ -n "$$unformatted" ]; then echo "not gofumpt-clean (make fmt):"; echo "$$unformatted"; exit 1; fi

vet: ## run go vet in every module
	@for module in $(MODULES); do (cd $$module && $(GO) vet ./...) || exit 1; done

fmt: ## format all Go code: gofumpt, and imports in three groups
	$(TOOL) golangci-lint fmt ./...
	$(TOOL) gofumpt -w -extra=group_params benchmarks

vuln: ## look for known vulnerabilities in all dependencies (uses vuln.go.dev)
	@for module in $(MODULES); do (cd $$module && $(GO) tool -modfile=$(CURDIR)/tools/go.mod govulncheck ./...) || exit 1; done

tidy-check: ## fail if a go.mod or go.sum is not tidy
	@for module in $(MODULES); do (cd $$module && $(GO) mod tidy -diff) || exit 1; done

spellings: ## send SPELLINGS (20,000) spellings of paths and values through Headgate to Express, Fastify, Go, PHP and nginx; make test sends 300
	@scripts/ensure.sh $(GO) nginx
	@scripts/ensure-web.sh node && scripts/ensure-express.sh && { scripts/ensure.sh php || true; }
	$(GO) test ./internal/e2e -run '^TestNoSpelling' -v -timeout 1h -args -spellings=$(SPELLINGS)

differential: ## compare the Lua scripts with the Go algorithms over OPS (1,000,000) random operations; make test does 50,000
	@scripts/ensure.sh $(GO) redis-server
	HEADGATE_REQUIRE_REDIS=1 $(GO) test ./store/redis -run '^TestDifferential$$' -v -args -differential.ops=$(OPS)

envoy-differential: ## compare with envoyproxy/ratelimit over REQUESTS (120,000) random requests; make test does 2,000
	@scripts/ensure.sh $(GO) redis-server
	cd differential/envoy && $(GO) test -count=1 -timeout 2h -run '^TestDifferential$$' -v . -requests $(REQUESTS)

envoy-integration: ## run the integration tests of envoyproxy/ratelimit against Headgate: four minutes
	@scripts/ensure.sh $(GO) redis-server redis-cli openssl
	cd differential/envoy && $(GO) test -count=1 -timeout 30m -run '^TestIntegration$$' -v . -integration

fuzz: ## run every fuzz target for FUZZTIME (10s)
	scripts/fuzz.sh $(FUZZTIME)

bench: ## compare with other rate limiters on this machine, in ROUNDS (5) interleaved rounds
	cd benchmarks && $(GO) run ./cmd/compare --rounds $(ROUNDS)

bench-blocks: ## compare limits in blocks with exact counting in Redis and in memory, in ROUNDS (5) rounds
	@scripts/ensure.sh $(GO) redis-server
	cd benchmarks && $(GO) build -o ../bin/bench-blocks ./cmd/blocks && ../bin/bench-blocks --rounds $(ROUNDS)

doors: ## measure the overhead of each door over its bare protocol
	cd benchmarks && $(GO) run ./cmd/doors

lab: ## measure the accuracy of the algorithms and write the tables of docs/internals/accuracy.md
	GO=$(GO) scripts/accuracy.sh

vectors: ## rewrite algorithm/testdata/vectors from the Go code
	$(GO) test ./algorithm -run TestVectors -update

formats: ## write what VERSION=v0.1.0 keeps on disk and in Redis, which later versions must read
	@scripts/ensure.sh $(GO) redis-server
	mkdir -p internal/e2e/upgrade/testdata/$(VERSION)
	test -e internal/e2e/upgrade/testdata/$(VERSION)/rules.yaml || cp "$$(ls -d internal/e2e/upgrade/testdata/v*/rules.yaml | sort -V | tail -1)" internal/e2e/upgrade/testdata/$(VERSION)/
	$(GO) test -count=1 ./internal/e2e/upgrade -run '^TestWrite$$' -args -formats $(VERSION)

proto: ## generate the Go code of api/ from its .proto files
	scripts/proto.sh

proto-check: ## fail if the generated code of api/ is out of date (needs protoc)
	scripts/proto.sh check

VERSION ?=
KEY     ?=
PLATFORMS ?= all
release: ## build release VERSION (v0.1.0) into bin/release, signed with KEY (a file) if given
	@scripts/ensure.sh $(GO) git
	cd dist/packaging && GOTOOLCHAIN=go$(shell cat .go-version) $(GO) run . --version "$(VERSION)" --key "$(if $(KEY),$(abspath $(KEY)))" --platforms "$(PLATFORMS)"

release-test: ## package this machine's binary, install it, upgrade it and remove it (as root on Debian)
	cd dist/packaging && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./...
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  scripts/ensure.sh $(GO) dpkg lintian rpm rpmlint cpio openssl systemd-analyze nginx && { scripts/ensure.sh skopeo || true; } && export HEADGATE_REQUIRE_PACKAGES=1; fi; \
	  cd dist/packaging && $(GO) test -count=1 -timeout 40m .

chart-test: ## test the Helm chart and the manifests of the pages
	cd dist/helm && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./... && $(GO) test -count=1 ./...

clean: ## remove build output
	rm -rf bin

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
