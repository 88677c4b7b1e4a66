# What needs a real Docker engine, the sandbox image and Debian's pytest.

PYTEST ?= /usr/bin/python3 -m pytest

.PHONY: test integration e2e engine-test
# One service's tests after the other: they measure memory and time on a small machine.
test: deps-test engine build images image-test unit fuzz engine-test integration e2e
	@echo "test: all passed"

$(BUILD)/engine_real: $(call obj,tests/integration/engine_real.c) $(call obj,$(foreach l,engine $(BELOW_engine),$(SRC_$(l))))
	@echo '  link  $@'
	@$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(ORCHESTRATOR_LIBS)
engine-test: $(BUILD)/engine_real
	$(BUILD)/engine_real $(SANDBOX_IMAGE)
integration: build
	$(PYTEST) tests/integration
e2e: build
	$(PYTEST) e2e
