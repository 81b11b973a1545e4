SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: build check test compat clients apps alerts operations lint demo accord soak chaos histories contend evaluate variants mutants model fuzz bench steps docs clean help

GO ?= go
FUZZTIME ?= 10s
SOAK ?= 10m
CHAOS ?= 10m
CONTEND ?= 30s
VERSION ?= 6
MUTANTS ?= 320
FIRST ?= $(shell date +%s)000

# Lists the packages with properties that are tested by drawn values: the same ones in each run, new ones by make fuzz.
DRAWN = $(GO) list -f '{{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}}{{end}}{{end}}' ./...

# Tools are kept in the checkout, at these versions.
TOOLS := $(CURDIR)/.run/bin
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := mvdan.cc/gofumpt@v0.12.0

build: ## build bin/music, static
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/music ./cmd/music

ifeq ($(origin VERSION),command line)
test: accord
else
test: ## everything that CI runs: vet, unit tests and the whole against real Cassandra, all with -race; VERSION=6: what accord runs
	$(GO) vet ./...
	$(GO) vet -tags compat ./integration/...
	for module in integration/bench integration/evaluate integration/apps/shop/go clients/go clients/gocql1; do $(GO) -C $$module vet ./...; done
	for module in clients/go clients/gocql1; do $(GO) -C $$module test ./...; done
	drawn=$$($(DRAWN)); \
	$(GO) test -race -timeout 25m $$($(GO) list ./... | grep -v -e '^music/integration' -e '^music/model' -e '^music/cmd/music-demo' | grep -vxF "$$drawn"); \
	$(GO) test -race -timeout 25m $$drawn -rapid.seed=1 -rapid.checks=60
	$(GO) test -run '^TestSimulation$$' ./musiccore -sim.seeds=12000
	$(GO) test -run 'TakeNoMemory$$|AllocatesLittle$$' ./frontend
	$(GO) test -v -timeout 15m ./model | grep -v -e '^=== ' -e '^  *--- PASS'
	$(GO) test -race -timeout 45m -count=1 -p 1 music/cmd/music-demo music/integration/...
	$(GO) -C integration/bench test -race -timeout 10m -count=1 ./...
	$(GO) -C integration/evaluate run ./onenode $(GO) test -race -timeout 15m -count=1 -p 1 ./...
endif

check: ## vet, and the tests that need no Cassandra: under two minutes
	$(GO) vet ./...
	$(GO) vet -tags compat ./integration/...
	for module in integration/bench integration/evaluate integration/apps/shop/go clients/go clients/gocql1; do $(GO) -C $$module vet ./...; done
	for module in clients/go clients/gocql1; do $(GO) -C $$module test ./...; done
	$(GO) test . ./config ./rewrite ./frontend/... ./musiccore ./cmd/music

compat: ## drivers for Node.js and Java, the way from nothing to a section through each driver, gocql's own tests, three proxies and a thousand connections under faults, the release before beside this one; needs node, npm, a JDK and Maven
	mkdir -p .run/node
	cp integration/compat/node/package.json integration/compat/node/package-lock.json .run/node
	npm ci --prefix .run/node --silent --no-audit --no-fund
	mvn --quiet --batch-mode --file integration/compat/java package
	$(GO) test -tags compat -v -timeout 2h -count=1 -run '^Test(NodeDriver|JavaDriver|GocqlSuites|ThreeProxies|ThousandConnections|CustomPayloads|Versions|DocsStart)' ./integration

clients: ## the helpers of every language, installed by pip, npm and Maven: one table of stories, and one over a real proxy
	mkdir -p .run/clients
	python3 -m pip install --quiet --no-deps --disable-pip-version-check --upgrade --target .run/clients/python ./clients/python
	npm install --silent --no-audit --no-fund --install-links --prefix .run/clients/node ./clients/node cassandra-driver@4.10.0
	for helper in java shedlock; do mvn --quiet --batch-mode --file clients/$$helper -Dtarget=$(CURDIR)/.run/clients/$$helper package; done
	$(GO) test -tags compat -v -timeout 20m -count=1 ./integration/clients
	$(GO) test -tags compat -v -timeout 20m -count=1 -run '^TestClients(Tell|ShedLock)' ./integration

apps: ## applications of others, untouched, at a node, through a proxy, and with their tables critical: each test must end the same (docs/applications.md); the first time it builds for ten minutes and more; needs node, npm, a JDK, Maven and pip
	mkdir -p .run/apps/node .run/apps/python
	$(GO) build -trimpath -o .run/apps/music ./cmd/music
	$(GO) -C integration/apps/shop/go build -o $(CURDIR)/.run/apps/shop .
	cp integration/apps/node/package.json integration/apps/node/package-lock.json .run/apps/node
	npm ci --silent --no-audit --no-fund --omit=optional --prefix .run/apps/node
	npm install --silent --no-audit --no-fund --no-save --install-links --omit=optional --prefix .run/apps/node ./clients/node
	python3 -m pip install --quiet --disable-pip-version-check --upgrade --target .run/apps/python ./clients/python cassandra-driver==3.30.1
	mvn --quiet --batch-mode --file clients/java -Dtarget=$(CURDIR)/.run/apps/helper package
	mvn --quiet --batch-mode --file integration/apps/java package
	$(GO) run ./integration/apps/fetch
	$(GO) test -tags compat -v -timeout 3h -count=1 ./integration/apps

alerts: ## each alert fires by its fault under a real Prometheus, and each query of the dashboard has data; needs prometheus and promtool
	$(GO) test -tags compat -v -timeout 30m -count=1 -run '^Test(AlertsFire|Promtool)$$' ./integration

operations: ## docs/operations.md as it is typed: a new node, one that is replaced, a new data centre, one that is lost, Paxos v1 to v2; a quarter of an hour
	$(GO) test -tags compat -v -timeout 90m -count=1 -run '^TestOperations' ./integration

lint: $(TOOLS)/.golangci-lint-v2.15.0 $(TOOLS)/.staticcheck-v0.8.2 $(TOOLS)/.gofumpt-v0.12.0 ## golangci-lint, staticcheck and gofumpt
	for module in . integration/bench integration/evaluate integration/apps/shop/go clients/go clients/gocql1; do (cd $$module && $(TOOLS)/golangci-lint run ./... && $(TOOLS)/staticcheck ./...); done
	@unformatted=$$($(TOOLS)/gofumpt -l .); [ -z "$$unformatted" ] || { echo "not gofumpt'ed:"; echo "$$unformatted"; exit 1; }

$(TOOLS)/.golangci-lint-v2.15.0: ; GOBIN=$(TOOLS) $(GO) install $(GOLANGCI_LINT) && touch $@
$(TOOLS)/.staticcheck-v0.8.2: ; GOBIN=$(TOOLS) $(GO) install $(STATICCHECK) && touch $@
$(TOOLS)/.gofumpt-v0.12.0: ; GOBIN=$(TOOLS) $(GO) install $(GOFUMPT) && touch $@

demo: build ## the story of a lock, told on a real Cassandra
	$(GO) build -trimpath -o bin/music-demo ./cmd/music-demo
	./bin/music-demo

# The tests that are left out differ by Cassandra 6 itself: docs/accord.md.
accord: ## transactions beside locks, ordinary CQL, conditions and values on a node of Cassandra VERSION (6, which is 6.0-alpha2), and locks on three
	$(GO) test -tags compat -v -timeout 30m -count=1 -run '^Test(Transaction|OrdinaryCQL|Values|Conditions|NoAttempt|Refusals|LocksPreparedAtThreeProxies)' -skip '^TestConditions(UnderALockAnswer|OnTheWire)' ./integration -cassandra=$(VERSION:6=6.0-alpha2)

soak: ## the simulation of the lock protocol on all cores, for SOAK (10m) or SEEDS=n seeds, from seed FIRST on
	$(GO) test ./musiccore -run '^TestSimulation$$' -count=1 -v -timeout 0 -sim.first=$(FIRST) $(if $(SEEDS),-sim.seeds=$(SEEDS),-sim.for=$(SOAK))

variants: ## find each known-bad variant of the lock protocol, and write docs/variants.md anew
	UPDATE_DOCS=1 $(GO) test ./musiccore -run '^TestVariants$$' -count=1 -timeout 1h -variants.all

mutants: ## break MUTANTS (320, or all) places of the product, those of SEED (1) or of the files ONLY, and write what no test finds to docs/mutants.md
	$(GO) run ./integration/mutants -seed $(or $(SEED),1) -n $(if $(ONLY),0,$(patsubst all,0,$(MUTANTS))) $(if $(ONLY),-only $(ONLY))

chaos: ## real nodes and proxies in an emulated network, under faults for CHAOS (10m), all or those that match FAULTS; SEED=n repeats a choice of them
	$(GO) test ./integration/chaos -run '^TestNothing' -count=1 -v -timeout 0 -chaos.for=$(CHAOS) $(if $(SEED),-chaos.seed=$(SEED)) $(if $(FAULTS),-chaos.only='$(FAULTS)')

histories: ## HISTORIES (100000) histories of conditional writes of one client compared with Cassandra's, and SHARED (10000) of several linearizable, from seed FIRST on
	$(GO) test ./integration -run '^TestHistories' -count=1 -v -timeout 0 -histories=$(or $(HISTORIES),100000) -histories.shared=$(or $(SHARED),10000) -histories.first=$(FIRST) -histories.workers=24

contend: ## sections at three emulated sites, on one key that all want, also in one data centre, and on keys of their own, for CONTEND (30s) each way, beside LWTs
	$(GO) test ./integration/chaos -run '^Test(ContendedKey|ContendedKeyInOneDataCentre|UncontendedSections)$$' -count=1 -v -timeout 0 -contend.for=$(CONTEND)

evaluate: ## the systems of the evaluation beside each other, into docs/evaluation: 30 minutes, or FULL=1: hours, going on where it was stopped; ONLY=fig6a,safety; EVALUATE="--against old.json", --again or --tries=9 ("--help" tells more); needs root and /dev/net/tun for distances
	@mkdir -p .run
	$(GO) -C integration/evaluate build -o $(CURDIR)/.run/bin/evaluate .
	trap 'exit 130' INT TERM; failed=0; \
	$(if $(ONLY),,$(GO) -C integration/evaluate run ./onenode $(GO) test -count=1 -p 1 ./... || failed=1; \
	$(GO) -C integration/evaluate run ./onenode sh -c '$(GO) test -count=1 ./ensemble ./zookeeper ./curator ./shedlock ./paper ./transaction ./service/struck -evaluate.long -timeout 30m; \
		a=$$?; $(GO) -C etcd test -count=1 . -evaluate.long && exit $$a' || failed=1;) \
	.run/bin/evaluate $(if $(FULL),--full) $(if $(ONLY),--only $(ONLY)) $(EVALUATE) || failed=1; \
	[ $$failed = 0 ] || { echo 'evaluate: something has failed, see above; what was measured is in docs/evaluation'; exit 1; }

model: ## the models of the lock protocol at large scope, 4 GB a search and up to 20 minutes for the vast ones; RECORD=1 writes the results to docs/model.md
	$(GO) test -v -count=1 -timeout 0 ./model -large $(if $(RECORD),-record) | grep -v -e '^=== ' -e '^  *--- PASS'

fuzz: ## each fuzz target for FUZZTIME (10s), a million statements of a new seed for each of Cassandra's parsers, and 2,000 new values for each property
	@found=$$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' --exclude-dir='.*' * || true); \
	while IFS=: read -r file func; do \
		[ -n "$$file" ] || continue; \
		echo "$$file $${func#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")"; \
	done <<< "$$found"
	$(GO) test -count=1 ./integration/parser -run TestRewriteReadsWhatCassandraReads -seed 0 -texts 1000000
	$(GO) test -count=1 -short -timeout 1h $$($(DRAWN)) -rapid.seed=$(FIRST) -rapid.checks=2000

bench: ## what the proxy costs beside a bare relay, and locks beside plain writes on a real Cassandra, in one run of 11 minutes; report and plots in .run, BENCH="-against .run/old.json" compares, "-help" tells more
	@mkdir -p .run
	$(GO) -C integration/bench build -o $(CURDIR)/.run/bin/bench .
	.run/bin/bench -out .run/bench.json $(BENCH)

steps: ## Go benchmarks of each step of a request, with their allocations
	$(GO) test -run '^$$' -bench . -benchmem $$($(GO) list ./... | grep -v '^music/integration')

docs: ## write docs/configuration.md anew from the table of settings
	UPDATE_DOCS=1 $(GO) test -count=1 -run '^TestReferencePageIsCurrent$$' ./config

clean: ## remove what was built, and the tools
	rm -rf bin .run

help: ## this list
	@sed -nE 's/^([a-z]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10
