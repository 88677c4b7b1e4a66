# Carrel. `make up` runs it, `make test` tests it, `make check` is what every commit must pass.
# `make help` lists the targets.

VARIANT ?= release
BUILD   := build/$(VARIANT)

STD   := -std=c17 -D_GNU_SOURCE -I. -I$(BUILD)/gen
WARN  := -Wall -Wextra -Wshadow -Wformat=2 -Wundef -Wvla -Wwrite-strings -Wpointer-arith -Wcast-qual \
         -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wswitch-enum -Wimplicit-fallthrough \
         -Wconversion -Wdouble-promotion -Wnull-dereference
GCC_WARN := -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init
WERROR ?= -Werror

ifeq ($(VARIANT),release)
  CC     := gcc
  CFLAGS := -O2 -g -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection \
            -ftrivial-auto-var-init=zero -fno-common -fPIE $(GCC_WARN)
  ifneq ($(filter x86_64 i%86,$(shell uname -m)),)
    CFLAGS += -fcf-protection=full
  endif
  LDFLAGS := -pie -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed
else ifeq ($(VARIANT),asan)
  CC      := clang
  CFLAGS  := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
  LDFLAGS := -fsanitize=address,undefined
else ifeq ($(VARIANT),tsan)
  CC      := clang
  CFLAGS  := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
  LDFLAGS := -fsanitize=thread
else ifeq ($(VARIANT),fuzz)
  CC      := clang
  CFLAGS  := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all
  LDFLAGS := -fsanitize=address,undefined,fuzzer
else
  $(error VARIANT must be release, asan, tsan or fuzz, not $(VARIANT))
endif

# ---- sources -------------------------------------------------------------------------------------------------

# A layer may use what stands in its row; tests/lint.sh checks the includes, the link lines of the unit tests the rest.
LAYERS       := common config db http access engine files session api cli
SRC_common   := $(wildcard common/*.c common/json/*.c)
SRC_config   := orchestrator/config.c
SRC_cli      := $(wildcard orchestrator/cli/*.c)
$(foreach l,db http access engine files session api,$(eval SRC_$(l) := $(wildcard orchestrator/$(l)/*.c)))

BELOW_common  :=
BELOW_config  := common
BELOW_db      := common
BELOW_http    := common
BELOW_access  := db http config common
BELOW_engine  := http common
BELOW_files   := db http common
BELOW_session := files engine access db http config common
BELOW_api     := session files engine access db http config common
BELOW_cli     := api $(BELOW_api)

ORCHESTRATOR_SRC := orchestrator/main.c $(foreach l,$(LAYERS),$(SRC_$(l)))
RUNNER_SRC       := $(wildcard runner/*.c)
UNIT_SRC         := $(wildcard tests/unit/test_*.c)
FUZZ_SRC         := $(wildcard tests/fuzz/fuzz_*.c)
C_FILES          := $(shell find common orchestrator runner tests -name '*.[ch]')

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))

ORCHESTRATOR_LIBS := -lmicrohttpd -lcurl -ljansson -larchive -lsqlite3 -lnettle -lrhonabwy -lpthread
RUNNER_LIBS       := -lzmq -ljansson

# ---- programs ------------------------------------------------------------------------------------------------

.PHONY: help build runner orchestrator
help:
	@echo "make up      run Carrel on this machine            make down    stop it (data stays)"
	@echo "make test    every test, with a real engine        make check   before a commit: minutes, no engine"
	@echo "make bench   measure                               make purge   remove data and images too"
	@echo "parts: build images unit asan tsan fuzz integration e2e lint fmt fmt-check docs docs-check soak"

JOBS ?= $(shell nproc)

build:
	@$(MAKE) --no-print-directory -j$(JOBS) orchestrator runner
orchestrator: $(BUILD)/carrel
runner: $(BUILD)/carrel-runner

$(BUILD)/carrel: $(call obj,$(ORCHESTRATOR_SRC))
	@echo '  link  $@'
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(ORCHESTRATOR_LIBS)

$(BUILD)/carrel-runner: $(call obj,$(RUNNER_SRC) $(SRC_common))
	@echo '  link  $@'
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(RUNNER_LIBS)

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	@echo '  cc    $<'
	@$(CC) $(STD) $(CFLAGS) $(WARN) $(WERROR) -MMD -MP -c -o $@ $<

# Text files that the program carries become byte arrays: orchestrator/db/schema.sql -> gen/schema_sql.h.
$(BUILD)/gen/schema_sql.h: orchestrator/db/schema.sql tests/embed.sh
	@mkdir -p $(@D)
	sh tests/embed.sh schema_sql $< > $@
$(call obj,orchestrator/db/db.c): $(BUILD)/gen/schema_sql.h

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---- unit tests ----------------------------------------------------------------------------------------------

# test_<layer>_<module>.c links its layer and what lies below it; test_runner_* links the runner without its main.
unit_layer   = $(word 2,$(subst _, ,$(notdir $(1))))
unit_objects = $(if $(filter runner,$(unit_layer)),$(call obj,$(filter-out runner/main.c,$(RUNNER_SRC)) $(SRC_common)),\
               $(call obj,$(foreach l,$(unit_layer) $(BELOW_$(unit_layer)),$(SRC_$(l)))))
unit_libs    = -lcmocka $(if $(filter runner,$(unit_layer)),$(RUNNER_LIBS),$(ORCHESTRATOR_LIBS))
UNIT_BIN    := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(UNIT_SRC))

define unit_rule
$(BUILD)/unit/$(1): $(call obj,tests/unit/$(1).c) $(call obj,$(wildcard tests/fakes/*.c)) $(call unit_objects,$(1))
	@mkdir -p $$(@D)
	@echo '  link  $$@'
	@$$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$^ $(call unit_libs,$(1))
endef
$(foreach t,$(notdir $(UNIT_SRC:.c=)),$(eval $(call unit_rule,$(t))))

.PHONY: unit unit-run asan tsan
unit:
	@$(MAKE) --no-print-directory -j$(JOBS) unit-run VARIANT=$(VARIANT)
asan:
	@$(MAKE) --no-print-directory -j$(JOBS) unit-run VARIANT=asan
tsan:
	@$(MAKE) --no-print-directory -j$(JOBS) unit-run VARIANT=tsan
unit-run: $(UNIT_BIN)
	@sh tests/unit/run.sh $(VARIANT) $(UNIT_BIN)

# ---- fuzzing: every parser of foreign bytes ------------------------------------------------------------------

FUZZ_SECONDS ?= 10
fuzz_layer    = $(shell sed -n 's,^/\* fuzz: \([a-z]*\).*,\1,p' $(1))
define fuzz_rule
$(BUILD)/fuzz/$(notdir $(1:.c=)): $(call obj,$(1)) $(if $(filter runner,$(2)),$(call obj,$(filter-out runner/main.c,$(RUNNER_SRC)) $(SRC_common)),$(call obj,$(foreach l,$(2) $(BELOW_$(2)),$(SRC_$(l)))))
	@mkdir -p $$(@D)
	@echo '  link  $$@'
	@$$(CC) $$(CFLAGS) $$(LDFLAGS) -o $$@ $$^ $(if $(filter runner,$(2)),$(RUNNER_LIBS),$(ORCHESTRATOR_LIBS))
endef
ifeq ($(VARIANT),fuzz)
$(foreach f,$(FUZZ_SRC),$(eval $(call fuzz_rule,$(f),$(call fuzz_layer,$(f)))))
endif

.PHONY: fuzz fuzz-run
fuzz:
	@$(MAKE) --no-print-directory -j$(JOBS) fuzz-run VARIANT=fuzz
fuzz-run: $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
	@sh tests/fuzz/run.sh $(FUZZ_SECONDS) $^

# ---- static checks -------------------------------------------------------------------------------------------

.PHONY: lint fmt fmt-check docs docs-check check
fmt:
	@clang-format -i $(C_FILES)
fmt-check:
	@clang-format --dry-run -Werror $(C_FILES)
lint: $(BUILD)/gen/schema_sql.h
	@sh tests/lint.sh "$(STD)"

# What the program itself knows is generated into the documentation.
docs: orchestrator
	$(BUILD)/carrel config > docs/CONFIG.md
	$(BUILD)/carrel config --readme README.md
docs-check: orchestrator
	@$(BUILD)/carrel config | diff -u docs/CONFIG.md - || { echo "docs/CONFIG.md is stale: run make docs"; exit 1; }
	@$(BUILD)/carrel config --readme-check README.md

check: fmt-check lint docs-check unit asan tsan
	@echo "check: all passed"

-include images/images.mk
-include compose/local/local.mk
-include tests/tests.mk
-include bench/bench.mk
