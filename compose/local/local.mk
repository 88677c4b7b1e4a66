# Carrel on this machine, without compose. Settings: the environment, or .env beside the Makefile.

.PHONY: deps deps-test engine up down purge
deps:
	@sh compose/local/deps.sh
deps-test:
	@sh compose/local/deps.sh test
engine:
	@sh compose/local/engine.sh
# One after the other, also with -j: the packages before the compiler, the engine before the image.
up:
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory engine
	@$(MAKE) --no-print-directory build
	@$(MAKE) --no-print-directory images
	@sh compose/local/up.sh
down:
	@sh compose/local/down.sh
purge: down
	@sh compose/local/purge.sh
