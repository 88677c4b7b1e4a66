# The sandbox image. `make images` builds what is missing; `make image-test` runs the tests that live in the image.

SANDBOX_IMAGE ?= carrel-sandbox:latest
DOCKER        ?= docker

# The way a sandbox runs: nothing is writable but its own directories, no name for its uid, no network.
SANDBOX_RUN = $(DOCKER) run --rm --read-only --user 20001:20001 --network none --cap-drop ALL \
	--security-opt no-new-privileges=true --memory 1g --pids-limit 256 --shm-size 256m \
	--tmpfs /tmp:exec,mode=1777,size=256m --tmpfs /run/kernel:uid=20001,gid=20001,mode=0700 \
	--tmpfs /mnt/data:exec,uid=20001,gid=20001,mode=0700 --tmpfs /home/sandbox:exec,uid=20001,gid=20001,mode=0700 \
	-e HOME=/home/sandbox -e OMP_NUM_THREADS=1 -e OPENBLAS_NUM_THREADS=1

.PHONY: images image-test
images:
	@DOCKER=$(DOCKER) sh images/build.sh $(SANDBOX_IMAGE)

image-test:
	$(SANDBOX_RUN) -v "$(CURDIR)/images/sandbox/tests:/tests:ro" -w /mnt/data --entrypoint python3 $(SANDBOX_IMAGE) \
		-B -m unittest discover -s /tests -v
