# haul: make, make test, make demo, make bench, make install PREFIX=~/.local

CARGO  ?= cargo
ifdef TIMES
SHELL := $(abspath scripts/timed-shell.sh)
endif
PREFIX ?= /usr/local

# Cargo builds for a named target (see .cargo/config.toml), so programs lie below its triple.
TRIPLE := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
TARGET := $(or $(CARGO_TARGET_DIR),target)

# The release profile ships. Tests and the demo run the same source as it is built for development: with assertions, in a third of the
# time. `make test PROFILE=release` tries what ships.
PROFILE ?= release
demo test setup-and-build dist-and-guest test-dist guest e2e: PROFILE = dev
HAUL = $(TARGET)/$(TRIPLE)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/haul

# On some processors the packaged guest kernel needs help, which `setup-test` makes. Looked for when a test begins.
GUEST_KERNEL := $(abspath $(TARGET))/guest-kernel/linux.uml
WITH_GUEST_KERNEL = $(if $(HAUL_LAB_KERNEL),,$(shell test -x $(GUEST_KERNEL) && echo HAUL_LAB_KERNEL=$(GUEST_KERNEL)))

.PHONY: all build haul test setup-test fmt-check clippy tidy unit guest dist test-dist e2e sweep fuzz fuzz-brief lint-deny demo bench bench-web man install clean help

all: build

# All tests, and the programs that they start, are one build: another choice of packages has other features, and builds them again.
TESTS_AND_PROGRAMS = $(CARGO) test --workspace --locked

build:
	$(if $(filter dev,$(PROFILE)),$(TESTS_AND_PROGRAMS) --no-run,$(CARGO) build --profile $(PROFILE) --locked -p haul-cli -p haul-lab)

haul:
	$(CARGO) build --profile $(PROFILE) --locked -p haul-cli

# Everything that must be clean. Scenarios wait for networks most of their time: what only needs processors runs meanwhile.
test: MEANWHILE = $(MAKE) clippy fuzz-brief
test: setup-and-build fmt-check tidy unit dist-and-guest e2e lint-deny-if-there

# Packing needs a processor, and a guest kernel waits for its own.
.PHONY: dist-and-guest
dist-and-guest:
	scripts/at-once.sh '$(MAKE) test-dist PROFILE=$(PROFILE)' '$(MAKE) guest PROFILE=$(PROFILE)'

# Packages come over the network while the processors build. Without a linker the packages come first.
.PHONY: setup-and-build
setup-and-build:
	if command -v cc >/dev/null; then scripts/at-once.sh '$(MAKE) setup-test' '$(MAKE) build PROFILE=$(PROFILE)'; \
	else $(MAKE) setup-test && $(MAKE) build PROFILE=$(PROFILE); fi

setup-test:
	scripts/setup-test.sh
	scripts/setup-guest-kernel.sh $(dir $(GUEST_KERNEL))

fmt-check:
	$(CARGO) fmt --all --check

tidy:
	$(CARGO) xtask tidy

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Tests of the crates. Many of them wait for a guest kernel or a network, so three test programs run at a time.
unit:
	$(WITH_GUEST_KERNEL) CARGO=$(CARGO) scripts/unit-tests.sh 3

# Tests of the crates that need a kernel with TLS, in a guest kernel (the package user-mode-linux; no root).
guest: build
	$(WITH_GUEST_KERNEL) HAUL_LAB_BIN=$(abspath $(HAUL)-lab) CARGO=$(CARGO) scripts/test-in-guest.sh

E2E = $(WITH_GUEST_KERNEL) HAUL_BIN=$(abspath $(HAUL)) HAUL_LAB_BIN=$(abspath $(HAUL)-lab) CARGO=$(CARGO) scripts/scenarios.sh

# Scenarios between network namespaces (root; otherwise most of them say why they are skipped). `make e2e TESTS=resume` runs a part.
# Most scenarios wait for a network: with ten at a time two processors are busy. Those of `limits`, `why`, `outlook` and `start`
# judge what is slow and when something is known, so they have more of the processors. What fails beside others runs once more, alone.
e2e: build
ifeq ($(TESTS),)
	MEANWHILE='$(MEANWHILE)' $(E2E) --test-threads=10 --skip limits:: --skip why:: --skip outlook:: --skip start::
	$(E2E) --test-threads=4 limits:: why:: outlook:: start::
else
	$(E2E) --test-threads=3 $(TESTS)
endif

# A small job, killed before each of its operations; `make unit` takes some of them. About five minutes.
sweep:
	HAUL_SWEEP=full $(CARGO) test --locked -p haul-transfer --test inside kill_sweep -- --nocapture

# One decoder over any bytes until something is found, or for ever: `make fuzz DECODER=items`. Wants a nightly compiler and cargo-fuzz.
DECODER ?= control
fuzz:
	$(CARGO) run --locked -p haul-fuzz --example corpus -- unpack fuzz/corpus
	$(CARGO) +nightly fuzz run -s none --features libfuzzer $(DECODER)

# Each decoder over changes of what is kept, a minute in all.
fuzz-brief:
	$(TESTS_AND_PROGRAMS) --no-run
	$(TARGET)/$(TRIPLE)/debug/examples/brief

# Licences, sources and known vulnerabilities of the dependencies.
lint-deny:
	$(CARGO) deny --all-features check

# Installing cargo-deny takes longer than all other checks together, so `make test` uses it where it is, and says so where not.
# Without network the list of advisories cannot be fetched; licences, bans and sources are checked all the same.
.PHONY: lint-deny-if-there
lint-deny-if-there:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	    $(CARGO) deny --all-features check bans licenses sources; \
	else \
	    echo "skipped: cargo-deny is not installed (cargo install cargo-deny --locked; then make lint-deny)"; \
	fi

demo: haul
	HAUL_BIN=$(abspath $(HAUL)) scripts/demo.sh

# Prints Markdown tables; `make bench > bench.md`. See scripts/bench.sh --help.
bench: haul
	@HAUL_BIN=$(abspath $(HAUL)) scripts/bench.sh

# The web service beside nginx. See scripts/bench-web.sh --help.
bench-web: haul
	@HAUL_BIN=$(abspath $(HAUL)) scripts/bench-web.sh

# Manual pages and completions, made from the definitions of the flags.
man: build
	rm -rf $(TARGET)/man $(TARGET)/completions
	mkdir -p $(TARGET)/man $(TARGET)/completions
	$(HAUL) man $(TARGET)/man
	$(HAUL) completions bash >$(TARGET)/completions/haul
	$(HAUL) completions zsh >$(TARGET)/completions/_haul
	$(HAUL) completions fish >$(TARGET)/completions/haul.fish

# A tarball, .deb, .rpm, a Python wheel and the directory of a container image, in $(TARGET)/dist. HAUL_BIN=PROGRAM packs another one.
dist: build
	HAUL_BIN=$(or $(HAUL_BIN),$(HAUL)) HAUL_HERE=$(HAUL) scripts/dist.sh

# Each of them in an empty root, with a copy of a file there. As root, on Debian; otherwise it says what is skipped.
test-dist: build
	HAUL_BIN=$(HAUL) PROFILE=$(PROFILE) scripts/test-dist.sh

install: man
	install -D -m 755 $(HAUL) $(DESTDIR)$(PREFIX)/bin/haul
	install -D -m 755 $(HAUL)-lab $(DESTDIR)$(PREFIX)/bin/haul-lab
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 644 $(TARGET)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -m 644 $(TARGET)/man/*.5 $(DESTDIR)$(PREFIX)/share/man/man5/
	install -D -m 644 $(TARGET)/completions/haul $(DESTDIR)$(PREFIX)/share/bash-completion/completions/haul
	install -D -m 644 $(TARGET)/completions/_haul $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_haul
	install -D -m 644 $(TARGET)/completions/haul.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/haul.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/haul README.md CHANGELOG.md SECURITY.md GLOSSARY.md LICENSE-MIT LICENSE-APACHE
	cp -r docs $(DESTDIR)$(PREFIX)/share/doc/haul/
	chmod -R u=rwX,go=rX $(DESTDIR)$(PREFIX)/share/doc/haul

# What `make install` with the same PREFIX and DESTDIR has brought.
.PHONY: uninstall
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/haul $(DESTDIR)$(PREFIX)/bin/haul-lab
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/haul.1 $(DESTDIR)$(PREFIX)/share/man/man1/haul-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/man/man5/haul-*.5
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/haul
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/haul
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_haul
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/haul.fish

clean:
	$(CARGO) clean

help:
	@echo "make            build the program: $(HAUL)"
	@echo "make test       everything that must be clean (as root: installs what is missing)"
	@echo "make e2e        scenarios between network namespaces; TESTS=resume for a part"
	@echo "make guest      tests that need a kernel with TLS, in a guest kernel"
	@echo "make sweep      a small job, killed before each of its operations"
	@echo "make fuzz       DECODER=control: any bytes, until something is found"
	@echo "make fuzz-brief each decoder over changed inputs, a minute in all"
	@echo "make demo       copy, kill, resume and verify a real tree over a private sshd"
	@echo "make bench      against scp, rsync and globus-url-copy on this machine"
	@echo "make bench-web  haul serve --http beside nginx on this machine"
	@echo "make install    PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)"
	@echo "make uninstall  takes that away again"
	@echo "make dist       packages: a tarball, .deb, .rpm, a Python wheel, a container image"
	@echo "make test-dist  each package in an empty root"
	@echo "make lint-deny  licences, sources and vulnerabilities of the dependencies"
