# make          release build: build/ctxzip and the library
# make install  installs both, headers and a CMake package to PREFIX (default: /usr/local)
# make demo     sets everything up, zips a sample document, asks it five questions
# make test     sets everything up, builds, runs every check and test
# make bench    benchmarks against libllama and this machine's limits
# make format   formats the sources; make lint checks format, includes and clang-tidy
BUILD ?= build
ASAN_BUILD ?= build-asan
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
# A waiting thread sleeps after about 50 us instead of spinning for milliseconds: on a busy machine
# spinning threads keep the core from the thread they wait for.
export GOMP_SPINCOUNT ?= 20000

.PHONY: all setup configure build install demo test unit-asan bench lint format clean

all: build

setup:
	@tools/setup.sh

configure: setup
	@cmake -G Ninja -B $(BUILD) -DCTXZIP_WERROR=ON > $(BUILD)-configure.log 2>&1 || { cat $(BUILD)-configure.log; exit 1; }
	@mv -f $(BUILD)-configure.log $(BUILD)/configure.log

build: configure
	@ninja -C $(BUILD) -j $(JOBS) ctxzip_cli libctxzip.so

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

demo: build
	@tools/demo.sh $(BUILD)/ctxzip

test: configure
	@ninja -C $(BUILD) -j $(JOBS)
	@tools/lint.sh $(BUILD)
	@$(MAKE) --no-print-directory unit-asan
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure

# Our own sources under AddressSanitizer and UndefinedBehaviorSanitizer; unit tests only.
unit-asan: setup
	@cmake -G Ninja -B $(ASAN_BUILD) -DCTXZIP_SANITIZE=address,undefined -DCTXZIP_BUILD_BENCH=OFF > $(ASAN_BUILD)-configure.log 2>&1 || { cat $(ASAN_BUILD)-configure.log; exit 1; }
	@mv -f $(ASAN_BUILD)-configure.log $(ASAN_BUILD)/configure.log
	@ninja -C $(ASAN_BUILD) -j $(JOBS) sanitized_tests
	@ASAN_OPTIONS=detect_container_overflow=0 ctest --test-dir $(ASAN_BUILD) -L sanitized -j $(JOBS) --output-on-failure

bench: configure
	@ninja -C $(BUILD) -j $(JOBS) bench_kernels bench_matmul bench_attention ctxzip_cli
	@$(BUILD)/ctxzip bench --context 7168 --no-check
	@$(BUILD)/bench_kernels

lint: configure
	@tools/lint.sh $(BUILD)

format:
	@git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | xargs clang-format -i

clean:
	rm -rf $(BUILD) $(ASAN_BUILD)
