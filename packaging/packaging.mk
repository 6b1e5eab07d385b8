# Installing, and packages for others to install. docs/INSTALL.md tells users.
.PHONY: install uninstall dist test-dist
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
# Not where Python looks by itself, since that differs from system to system.
PYTHONDIR ?= $(PREFIX)/share/p2pshim/python
DESTDIR ?=
INSTALLED ?= target/release

# Seen from the prefix.
below_prefix = $(or $(patsubst $(PREFIX)/%,%,$(filter $(PREFIX)/%,$1)),$(error $1 is not below PREFIX=$(PREFIX)))

# Under sudo there is often no cargo: then what `make build` has built is installed.
install: $(if $(shell command -v $(CARGO)),build)
	stage=$$(mktemp -d) && trap 'rm -rf "$$stage"' EXIT && packaging/stage "$$stage/files" \
		$(call below_prefix,$(LIBDIR)) $(call below_prefix,$(PYTHONDIR)) $(INSTALLED)/libp2pshim.so $(INSTALLED)/p2pshim $(SIM_LIB) && \
		packaging/place install "$$stage/files" "$(DESTDIR)$(PREFIX)"
	echo "p2pshim is installed in $(DESTDIR)$(PREFIX)"

uninstall:
	packaging/place uninstall "$(DESTDIR)$(PREFIX)"

# Packages run on machines that are older than the one that builds them: all that is in them is linked for the glibc of 2012.
GLIBC := 2.17
# `make dist DIST_MACHINE=aarch64` makes those of another machine, in target/dist-aarch64.
DIST_MACHINE ?= x86_64
export DIST_MACHINE
IS_CROSS := $(filter-out x86_64,$(DIST_MACHINE))
DIST := target/dist$(addprefix -,$(IS_CROSS))
DIST_TARGET := $(DIST_MACHINE)-unknown-linux-gnu
DIST_BUILD := target/$(DIST_TARGET)/release
DIST_SIM := $(DIST)/sim/lib
TOOLS := $(CURDIR)/target/tools/dist
ZIG := $(TOOLS)/ziglang/zig
# Caches of the tools, so that they leave nothing elsewhere.
ZIG_ENV := CARGO_ZIGBUILD_ZIG_PATH=$(ZIG) CARGO_ZIGBUILD_CACHE_DIR=$(CURDIR)/target/tools/cache \
	ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/target/tools/cache/zig ZIG_LOCAL_CACHE_DIR=$(CURDIR)/target/tools/cache/zig
ZIGBUILD = $(ZIG_ENV) $(TOOLS)/bin/cargo-zigbuild zigbuild --release --target $(DIST_TARGET).$(GLIBC)
# Packages of the same files are the same, byte by byte.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || date +%s)
DIST_CC = $(ZIG) cc -target $(DIST_MACHINE)-linux-gnu.$(GLIBC)
# Another machine's command is run under emulation, and the linker strips its files, which the strip of this one may not know.
STAGE = $(if $(IS_CROSS),$(ZIG_ENV) RUN="$(QEMU)" STRIP=true CC="$(DIST_CC) -s -Wno-unused-command-line-argument") packaging/stage

.PHONY: dist-build dist-tools
dist-tools:
	packaging/get-tools dist
# Cargo builds anew what has seen another date.
dist-build: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
dist-build: $(if $(IS_CROSS),arm-tools,dist-tools)
	$(ZIGBUILD) -p p2pshim -p p2psim-cuda -p p2psim-cudart -p p2psim-hip
	$(NO_LTO) $(ZIGBUILD) -p p2pshim-cli
	$(ZIG_ENV) $(MAKE) -s --no-print-directory -f sim/link.mk LIB=$(DIST_SIM) ARCHIVES=$(DIST_BUILD) UNWIND=-lunwind \
		CC="$(DIST_CC)$(if $(IS_CROSS), -s)" shared

# The layout of packages, but for its place.
DIST_FILES := $(DIST_BUILD)/libp2pshim.so $(DIST_BUILD)/p2pshim $(DIST_SIM) $(DIST)/THIRD-PARTY

dist: export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
dist: export GLIBC := $(GLIBC)
dist: dist-build
	rm -rf $(DIST)/deb $(DIST)/*.whl $(DIST)/*.deb
	packaging/third-party $(TOOLS)/ziglang/lib/libunwind/LICENSE.TXT >$(DIST)/THIRD-PARTY
	$(STAGE) $(DIST)/stage lib python $(DIST_FILES)
	packaging/python/make-wheel $(DIST)/stage $(DIST)
	$(STAGE) $(DIST)/deb/usr lib/$(DIST_MACHINE)-linux-gnu lib/python3/dist-packages $(DIST_FILES)
	packaging/debian/make-deb $(DIST)/deb $(DIST)

# The packages in clean places, and some of the tests with the library that is in them. `make test SHIM_PROFILE=dist` makes all.
test-dist: dist programs valgrind
	P2PSHIM_LIB=$(DIST)/stage/lib/libp2pshim.so.0 tests/run --profile dist
