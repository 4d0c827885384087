# Every target first sets up what it needs (scripts/setup: silent when nothing is missing), then does its job.

.DEFAULT_GOAL := help
.PHONY: help build demo cluster-demo test elixir page-test top-pictures asan tsan fuzz check bench bench-report docs shell weir watch-forms mutants appup \
    package package-check test-otp27 test-otp29 clean

# make test SUITE=weir_pool CASE=restart; make bench BENCH=weir_pool,weir_server; make fuzz FUZZ_SECONDS=600
# make mutants APP=weir_pool N=20 SEED=2
export SUITE CASE STRICT JOBS LONG BENCH BENCH_ROUNDS FUZZ_SECONDS WATCH APP N SEED

# A process for each of many callers at once needs a higher limit than the default; Ctrl-C ends the run.
ERL := erl +P 400000 +Bd -noshell -pa _build/default/lib/*/ebin

help: ## list the targets
	@awk -F ':[^#]*## ' '/^[a-z0-9-]+:[^#]*## / {printf "make %-14s%s\n", $$1, $$2}' Makefile

build: ## compile everything (WEIR_SOCKET_NO_NIF=1: weir_socket on gen_tcp, as where there is no epoll)
	@scripts/setup build
	rebar3 compile

demo: ## the main job: every part on real input, beside plain OTP, in a minute; WATCH=1 goes on, with a page
	@scripts/setup $(if $(MEMCACHED),build,demo)
	@rebar3 compile
	@if [ -t 1 ]; then export WEIR_DEMO_TERMINAL=yes; fi; $(ERL) -eval 'weir_demo:main().'

cluster-demo: ## three nodes, a load, one of them killed and frozen before your eyes, in twenty seconds
	@scripts/setup build
	@rebar3 compile
	@$(ERL) -eval 'weir_demo_cluster:main().'

test: ## run the tests (SUITE=name for one suite, with CASE=name for one case of it; STRICT=1, JOBS=n, LONG=1)
	@scripts/setup test
	@scripts/test

elixir: ## the tests of examples/elixir, and the Elixir of the guides
	@scripts/setup elixir
	@scripts/elixir

page-test: ## the page of weir_watch in a headless Chromium (PICTURES=yes for new ones in docs/pictures)
	@scripts/setup page-test
	@rebar3 compile
	@scripts/page-test

top-pictures: ## pictures of weir top in a terminal (tmux), for docs/pictures
	@$(MAKE) -s weir
	@scripts/setup top-pictures
	@scripts/top-pictures

asan: ## the suites of weir_socket on a NIF with AddressSanitizer and UndefinedBehaviorSanitizer (SUITE=, CASE=)
	@scripts/setup asan
	@scripts/sanitize asan

tsan: ## the suites of weir_socket on a NIF with ThreadSanitizer (SUITE=, CASE=)
	@scripts/setup tsan
	@scripts/sanitize tsan

fuzz: ## fuzz the packet framing of weir_socket (FUZZ_SECONDS=20)
	@scripts/setup fuzz
	@$(MAKE) -s -C apps/weir_socket/c_src/fuzz run BUILD=$(CURDIR)/_build/fuzz

check: ## warnings as errors, xref, dialyzer, declared against actual dependencies
	@scripts/setup check
	@scripts/check

bench: ## run the benchmarks (BENCH=name,name for some of them), then what bench-report does
	@scripts/setup bench
	@rebar3 compile
	@$(ERL) -eval 'weir_bench:main().'

bench-report: ## docs/benchmarks.md and its pictures, from the latest results of make bench on OTP 29 and 25
	@scripts/setup build
	@rebar3 compile
	@$(ERL) -eval 'weir_bench_report:write(), halt().'

docs: ## guides and reference as one site with search, in _build/site/, and the check of its links
	@scripts/setup docs
	@scripts/chunks _build/docs/chunks
	@scripts/site _build/docs/chunks _build/docs _build/site
	@scripts/links _build/site
	@echo "_build/site/index.html; with search: cd _build/site && /usr/bin/python3 -m http.server --bind 127.0.0.1"

shell: ## a shell with all applications and their documentation: h(weir_pool).
	@scripts/setup build shell
	@rebar3 compile
	@scripts/chunks _build/default/lib
	@erl +P 400000 -pa _build/default/lib/*/ebin

weir: ## the command bin/weir, one file: bin/weir top NODE
	@scripts/setup build
	@rebar3 compile
	@scripts/weir _build/default/lib bin/weir

watch-forms: ## what weir_watch says of each injected fault, on this OTP, into docs/internals/watch.md (ten minutes)
	@scripts/setup test
	@status=0; LONG=1 WEIR_WATCH_RESULTS=$(CURDIR)/_build/watch_forms.terms SUITE=weir_watch_faults_SUITE CASE=forms \
	    scripts/test || status=1; scripts/watch-forms _build/watch_forms.terms docs/internals/watch.md; exit $$status

mutants: ## which of N mutations of an application its suites do not notice (APP=weir_pool N=20 SEED=1)
	@scripts/setup test
	@scripts/mutants

appup: ## write the .appup of each application anew, from its modules
	@scripts/setup build
	@rebar3 compile
	@scripts/appup _build/default/lib

package: ## a package of each application, as hex takes them, in _build/packages/
	@scripts/setup package
	@rm -rf _build/packages
	@scripts/package _build/packages

package-check: package ## each package alone, and as a dependency in releases of rebar3 and mix
	@scripts/setup package-check
	@scripts/package-check

test-otp27: ## run the tests on OTP 27, in a root directory of Debian trixie (the first time takes minutes)
	@scripts/setup root
	@scripts/otp-root 27 make test

test-otp29: ## run the tests on OTP 29, in a root directory of Debian forky (the first time takes minutes)
	@scripts/setup root
	@scripts/otp-root 29 make test

clean: ## remove what was built
	rm -rf _build examples/elixir/_build examples/elixir/tmp
