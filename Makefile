# "make help" explains every target. Building, running and testing need Go, git
# and make, and nothing else; the developer tools are pinned in tools/go.mod and
# built from there when a target first needs them.

GO       ?= go
FUZZTIME ?= 10s
SOAK     ?= 10m
COUNT    ?= 6
RIVALS   ?= 1
MEMBERS  ?= 32
REQUESTS ?= 2000
TIMEOUT  ?= 10m
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS  := $(if $(VERSION),-X main.version=$(VERSION))

.DEFAULT_GOAL := help
# One step at a time: each uses all cores by itself.
.NOTPARALLEL:
.PHONY: help build run test test-long limits clients check bench golden arena arena-population docs fuzz mutate soak lint fmt fix vuln sbom clean \
	check-fmt check-mod check-generated check-tools check-fuzz check-bench check-golden vet deadcode

help: ## Explain every target.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  Variables: FUZZTIME=$(FUZZTIME) a fuzz target, COUNT=$(COUNT) runs a benchmark, OLD=FILE to compare"
	@echo "  benchmarks with, TIMEOUT=$(TIMEOUT) a test binary, VULNDB=URL of another vulnerability database."

build: ## Build bin/headway, static and reproducible.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/headway ./cmd/headway

run: build ## Show Headway at work on this machine, without any account.
	scripts/demo.sh

# The program first: go run keeps it in the build cache, where the packages of e2e find it. Three packages more
# at once than there are cores, for those of e2e mostly wait; the longest first, so that none of
# them is at work alone in the end. Arena and SDKs, modules of their own, at the same time: a test of SDKs mostly waits.
# go vet is a step of make check.
# Without paths in them, what was compiled serves the same source in another folder too. No debugger looks into a test
# binary: without its tables (-w) linking takes a fifth less.
test test-long: export GOFLAGS := $(GOFLAGS) -trimpath

test: ## Run all tests, with the race detector where a C compiler is at hand.
	@race=$$(scripts/race) && cores=$$(getconf _NPROCESSORS_ONLN || echo 1) && set -x && \
	$(GO) run -exec true ./cmd/headway || exit 1; \
	$(GO) -C e2e/sdk test $$race -vet=off -ldflags=-w -timeout $(TIMEOUT) ./... & sdk=$$!; \
	$(GO) -C arena test $$race -vet=off -ldflags=-w -timeout $(TIMEOUT) ./... & arena=$$!; code=0; \
	$(GO) test $$race -vet=off -ldflags=-w -p $$((cores + 3)) -timeout $(TIMEOUT) ./e2e/crash ./e2e/hold ./e2e/limits ./collect ./internal/sim ./... || code=1; \
	wait $$sdk || code=1; wait $$arena || code=1; exit $$code

test-long: ## Run the tests that kill at random, draw or load much, with their full numbers (an hour, TIMEOUT=2h).
	@race=$$(scripts/race) && set -x && $(GO) test $$race -count 1 -timeout $(TIMEOUT) ./bulk ./collect ./egress ./fleet ./internal/console ./internal/journal ./internal/sim ./internal/sim/serve/dataverse ./internal/valkey ./quota \
	./store/sqlite ./sink/jsonl ./sink/parquet ./sink/sqlite ./e2e/bulk ./e2e/crash ./e2e/hold ./e2e/provider ./e2e/serve -long || exit 1; \
	$(GO) test $$race -count 1 -skip '^TestRealClients$$' -timeout $(TIMEOUT) ./internal/forward ./e2e/run -long

limits: ## Measure collecting against real nginx and HAProxy with limits (half an hour of waiting); LAW=NAME, REQUESTS=2000, TRAEFIK=PATH of a Traefik.
	@mkdir -p out && rm -f out/limits.jsonl
	$(GO) test -count 1 -run '^Test(RealLimits|CollectsEverythingThroughLimitsOfNginx)$$' -v -timeout 0 ./e2e/limits -long -limits.requests $(REQUESTS) -limits.law "$(LAW)" -limits.traefik "$(TRAEFIK)" -limits.report "$(CURDIR)/out/limits.jsonl"

clients: ## Try some twenty programs behind headway run, against nginx with limits, and write the table of docs/guides/run.md (half an hour of waiting).
	$(GO) test -count 1 -run '^TestRealClients$$' -v -timeout 0 ./e2e/run -long -clients.write

check: check-fmt check-mod check-generated lint vet deadcode check-tools test check-golden check-fuzz check-bench ## Run everything that a change has to pass.
	@code=0; scripts/vuln || code=$$?; case $$code in \
	0) echo "check: passed" ;; \
	4) echo "check: passed, EXCEPT that known vulnerabilities were NOT CHECKED (run \"make vuln\" where vuln.go.dev can be reached)" ;; \
	*) exit $$code ;; esac

bench: ## Run all benchmarks into out/bench.txt and summarise; OLD=FILE compares.
	@mkdir -p out
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) -timeout 60m ./... >out/bench.txt || { cat out/bench.txt; exit 1; }
	@$$(scripts/tool benchstat) $(OLD) out/bench.txt

golden: ## Write the results that tests compare with again, after a change of the law that is meant; read the difference.
	$(GO) test -count 1 -run Golden ./internal/sim ./internal/sim/population -update

arena: ## Hold the laws against their rivals and write docs/arena.md; RIVALS=3 for all seeds.
	$(GO) -C arena test -run '^TestArena$$' -count 1 -timeout 120m -arena.write ../docs -arena.rivals $(RIVALS)

arena-population: ## What docs/arena.md leads with, alone: MEMBERS providers with rivals.
	$(GO) -C arena test -run '^TestArenaPopulation$$' -count 1 -timeout 120m -arena.write ../docs -arena.members $(MEMBERS)

docs: ## Write the documents as a web site, with a search, into out/site.
	$(GO) -C tools run ./site "$(CURDIR)" "$(CURDIR)/out/site"

fuzz: ## Fuzz every target for FUZZTIME.
	scripts/fuzz $(FUZZTIME)

soak: ## An hour of virtual time and SOAK of real collecting, both flat in memory; fleets against one process; kills at random instants: 600, 600 with PostgreSQL, and 60 of workers.
	$(GO) test -count 1 -run '^TestAnHour' -v .
	$(GO) test -count 1 -run '^TestSoak$$' -v -timeout 0 ./e2e/hold -soak $(SOAK)
	$(GO) test -count 1 -run '^Test(FleetAgainstOne|CollectsEverythingThroughLimitsOfNginx)$$' -v -timeout 0 ./e2e/limits -long
	$(GO) test -count 1 -run '^TestRandomInstants$$' -v -timeout 0 ./e2e/crash -long
	$(GO) test -count 1 -run '^Test(CollectorsThatAreKilled|AServerThatRestarts)$$' -v -timeout 0 -p 1 ./store/postgres ./sink/postgres -long
	$(GO) test -count 1 -run '^TestWorkersThatAreKilled$$' -v -timeout 0 ./internal/worker -long

mutate: ## Put small faults into PKG, one at a time, and say which ones its tests miss (ARGS="-sample 100").
	@[ -n "$(PKG)" ] || { echo 'name packages, as PKG="./internal/pace ./breaker"'; exit 2; }
	$(GO) -C tools run ./mutate -C "$(CURDIR)" $(ARGS) $(PKG)

lint: ## Run the linters of .golangci.yml (the first run builds them, in minutes).
	@lint=$$(scripts/tool golangci-lint) && set -x && $$lint config verify && $$lint run ./...

deadcode: ## Say which functions neither a program nor a test of any module reaches; there must be none.
	scripts/deadcode

vet: ## Run go vet.
	$(GO) vet ./...
	$(GO) -C arena vet ./...
	$(GO) -C e2e/sdk vet ./...

fmt: ## Format all Go files.
	gofmt -s -w .

fix: ## Rewrite code to the idiom of the Go version in go.mod.
	$(GO) fix ./...
	gofmt -s -w .

vuln: ## Look for known vulnerabilities; fails when the database cannot be reached.
	scripts/vuln

sbom: build ## Write out/headway.cdx.json, the bill of materials of bin/headway.
	@mkdir -p out
	$(GO) -C tools run ./sbom "$(CURDIR)/bin/headway" >out/headway.cdx.json
	@echo "out/headway.cdx.json: $$(grep -c '"type": "library"' out/headway.cdx.json) libraries"

clean: ## Remove what was built and measured; the tools in bin/tools stay.
	rm -rf bin/headway out dist

check-fmt:
	@files=$$(gofmt -s -l .) || exit 1; [ -z "$$files" ] || { echo "not formatted, run \"make fmt\":"; echo "$$files"; exit 1; }

check-mod:
	$(GO) mod tidy -diff
	$(GO) mod verify

check-generated:
	scripts/generated

check-tools:
	$(GO) -C tools vet ./...
	$(GO) -C tools test ./...
	$(GO) -C tools run ./site "$(CURDIR)" "$(CURDIR)/out/site"

check-fuzz:
	scripts/fuzz $(FUZZTIME)

check-golden:
	$(GO) test -count 1 -run Golden ./internal/sim ./internal/sim/population -long

check-bench:
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...
