# The front door. `make` alone prints what there is; tools/ has the scripts behind it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BASE := $(if $(REBAR_BASE_DIR),$(REBAR_BASE_DIR),_build)
RELEASE := $(BASE)/default/rel/halley
NATIVE := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),edge/target)/release
# What tools/install.sh unpacks, if the system has none.
export PATH := $(PATH):$(CURDIR)/.tools/rebar3/usr/bin
BENCH ?=
N ?= 1000000
HOURS ?= 1
STEPS ?= 100

.PHONY: help run test build check console bench bench-rivals bench-articles bench-smp bench-million bench-bad-day bench-soak \
	bench-comeback bench-hooks tabs bench-ketama ketama-peers bench-transport bench-epgsql \
	bench-postgres epgsql-suites client simulate-clients simulate-cluster faults faults-postgres doors fuzz docs clean \
	bench-import static install-run install-test install-console install-rivals install-client \
	check-config native edge release

# The edge into the release, and ./halley.
define PUT_TOGETHER
@install -D $(NATIVE)/halley-edge $(RELEASE)/bin/halley-edge
@sed 's|@RELEASE@|$(RELEASE)|' tools/halley.in > halley
@chmod +x halley
endef

help: ## print this table
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

run: install-run check-config edge release ## install what is missing, build, run in the foreground; Ctrl-C stops it
	$(PUT_TOGETHER)
	@./halley try
	@exec ./halley foreground

test: install-test build client ## install what is missing, run every test
	@tools/test.sh

build: install-run native release ## build the release and the native programs
	$(PUT_TOGETHER)
	@install -D $(NATIVE)/halley-load $(RELEASE)/bin/halley-load
	@install -D $(NATIVE)/halley $(RELEASE)/bin/halley-cli

static: install-run ## the command line as one static program, _build/static/halley, for other machines
	@tools/static.sh

check: install-test ## what CI asks of the code itself: formats, lints, types, house rules
	@tools/check.sh

console: install-console ## build the console into apps/halley_api/priv/console, which is committed
	@node console/build.mjs

client: install-client ## build the JavaScript client into clients/js/dist
	@node clients/js/build.mjs
	@cp clients/js/dist/halley.min.js apps/halley_api/priv/demo/

bench: install-test build ## run the benchmark whole and print its table
	@bench/run $(BENCH)

bench-rivals: install-test install-rivals build ## measure Halley and its rivals in one run
	@bench/rivals/run $(BENCH)

bench-articles: install-test install-rivals build ## the 2008 articles' measurements again, with their plots (BENCH="--connections 10000")
	@bench/articles/run $(BENCH)

bench-smp: install-test build ## one scheduler or two, and the emulator's flags
	@tools/install.sh smp
	@bench/smp/run $(BENCH)

bench-million: install-test build ## hold a million connections through it all (N=1000000)
	@bench/million/run --connections $(N) $(BENCH)

bench-bad-day: install-test build ## connect a million while events are published, then kill the brain under a herd (N=1000000)
	@bench/million/bad-day --connections $(N) $(BENCH)

bench-soak: install-test build ## publish for hours, is memory flat? (HOURS=1, the article's: 24)
	@bench/million/soak --hours $(HOURS) $(BENCH)

bench-comeback: install-test build client ## 10,000 clients of clients/js lose their edge and come back
	@bench/comeback/run $(BENCH)

bench-hooks: build ## hooks at a rate, while their endpoint is down and the brain is killed (BENCH=)
	@bench/hooks/run $(BENCH)

bench-import: build ## import 15,000,000 follows, killed twice (BENCH="FOLLOWS KILLS")
	@node bench/import.mjs $(BENCH)

bench-ketama: install-run ## look-ups of a ring (apps/ketama), the article's port program beside it
	@rebar3 compile
	@bench/ketama/run speed

ketama-peers: install-run ## ask libmemcached and memcached what ketama answers; installs them first
	@tools/install.sh ketama
	@rebar3 compile
	@bench/ketama/run peers

bench-transport: install-run ## apps/teleport beside OTP's distribution (PARTS="ring breaks=1000 --save")
	@rebar3 compile
	@bench/teleport/run $(PARTS)

epgsql-suites: install-run ## run epgsql 4.8's own suites against apps/epgsql (FROM=a checkout of it)
	@tools/install.sh epgsql
	@tools/epgsql-suites/run $(FROM)

bench-epgsql: install-run ## queries and rows a second of apps/epgsql and two others (FROM=epgsql 4.8)
	@tools/install.sh epgsql-rivals
	@rebar3 compile
	@bench/epgsql/run $(FROM)

bench-postgres: install-test ## follows and events out of a PostgreSQL (PARTS="copy=1000000 writes")
	@rebar3 compile
	@for part in $(or $(PARTS),copy changes events edge batches writes); do \
		case $$part in \
			edge*) node bench/postgres-edge.mjs $$(echo "$$part" | sed -n \
				's/^edge=\([0-9]*\)=\([0-9]*\)$$/--rate \1 --seconds \2/p') ;; \
			*) ERL_LIBS=$(BASE)/default/lib escript bench/postgres.escript $${part//=/ } ;; \
		esac || exit 1; \
	done

faults: install-test build ## inject faults at random, prove that nothing is lost (FAULTS_SECONDS=600)
	@node test/faults/run.mjs

faults-postgres: install-test build ## kill and stall brain, edge and a PostgreSQL: nothing lost or twice (KILLS=100)
	@node test/faults/postgres.mjs

tabs: install-test build client ## kill tabs, network, edge and brain at random: nothing lost or twice (STEPS=100 LATENCY=100 SYNC=30 GAP_MS= BROWSER= SEED= SAVE=)
	@CHAOS_STEPS=$(STEPS) CHAOS_LATENCY=$(or $(LATENCY),100) CHAOS_SYNC=$(or $(SYNC),30) CHAOS_BROWSER=$(BROWSER) CHAOS_GAP_MS=$(GAP_MS) \
		$(if $(SEED),CHAOS_SEED=$(SEED)) $(if $(SAVE),CHAOS_SAVE=1) node --test clients/js/test/chaos.test.mjs

simulate-clients: install-test ## tell so many stories of tabs, network and server to the JavaScript client (SEEDS=1000000)
	@node clients/js/test/simulator/run.mjs 1 $(or $(SEEDS),1000000)

simulate-cluster: install-run ## tell so many stories of brains, network and log to the cluster's core (SEEDS=10000 FIRST=1)
	@rebar3 as test compile
	@erl -noshell -pa $(BASE)/test/lib/*/ebin $(BASE)/test/lib/halley_cluster/test \
		-run halley_cluster_simulate main $(or $(FIRST),1) $(or $(SEEDS),10000)

doors: install-test build ## foreign conformance suites against the build; says where it takes them from
	@tools/install.sh doors
	@node test/doors/run.mjs

fuzz: install-test ## fuzz each target for a minute (FUZZ_SECONDS=60, FUZZ_RUNS=0: no bound)
	@tools/fuzz.sh $${FUZZ_SECONDS:-60}

docs: build ## write the reference pages from the schema and the tables in the code
	@escript tools/docs.escript $(BASE)/default/lib write
	@$(NATIVE)/halley reference > docs/reference/command-line.md

clean: ## remove what was built
	rm -rf _build edge/target edge/fuzz/target clients/js/dist halley

install-run:
	@tools/install.sh run

install-test:
	@tools/install.sh test

install-console:
	@tools/install.sh console

install-rivals:
	@tools/install.sh rivals

install-client:
	@tools/install.sh client

# Minutes before what is built would say it.
check-config:
	@escript tools/check-config.escript

# The command line alone: its HTTP client would have rustls built with more for the edge as well.
native:
	@cargo build --release --locked --manifest-path edge/Cargo.toml --workspace --exclude halley-cli
	@cargo build --release --locked --manifest-path edge/Cargo.toml --package halley-cli

# Without the tools for load and reports, which a first run doesn't need.
edge:
	@cargo build --release --locked --manifest-path edge/Cargo.toml --package halley-edge

release:
	@rebar3 release
