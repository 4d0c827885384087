# Every target first sets up what it needs (scripts/setup: silent when nothing is missing), then does its job.

.DEFAULT_GOAL := help
.PHONY: help build demo test asan fuzz check bench docs test-otp27 test-otp29 clean

# make test SUITE=weir_pool CASE=restart; make bench BENCH=weir_pool,weir_server; make fuzz FUZZ_SECONDS=600
export SUITE CASE BENCH FUZZ_SECONDS

# A process for each of many callers at once needs a higher limit than the default; Ctrl-C ends the run.
ERL := erl +P 400000 +Bd -noshell -pa _build/default/lib/*/ebin

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 18

build: ## compile everything
	@scripts/setup build
	rebar3 compile

demo: ## the main job: every part on real input, beside plain OTP (MEMCACHED=host:port to use a server of yours)
	@scripts/setup demo
	@rebar3 compile
	@$(ERL) -eval 'weir_demo:main().'

test: ## run the tests (SUITE=name for one suite, with CASE=name for one case of it)
	@scripts/setup test
	@scripts/test

asan: ## the suites of weir_socket on a NIF with AddressSanitizer and UndefinedBehaviorSanitizer (SUITE=, CASE=)
	@scripts/setup asan
	@scripts/asan

fuzz: ## fuzz the packet framing of weir_socket (FUZZ_SECONDS=20)
	@scripts/setup fuzz
	@$(MAKE) -s -C apps/weir_socket/c_src/fuzz run BUILD=$(CURDIR)/_build/fuzz

check: ## warnings as errors, xref, dialyzer, declared against actual dependencies
	@scripts/setup check
	@scripts/check

bench: ## run the benchmarks (BENCH=name,name for some of them)
	@scripts/setup bench
	@rebar3 compile
	@$(ERL) -eval 'weir_bench:main().'

docs: ## the reference of every application, in its folder doc/
	@scripts/setup docs
	@rebar3 edoc

test-otp27: ## run the tests on OTP 27, in a root directory of Debian trixie (the first time takes minutes)
	@scripts/setup root
	@scripts/otp-root 27 make test

test-otp29: ## run the tests on OTP 29, in a root directory of Debian forky (the first time takes minutes)
	@scripts/setup root
	@scripts/otp-root 29 make test

clean: ## remove what was built
	rm -rf _build apps/*/doc demo/doc bench/doc
