# What a person does with this repository. `make help` lists it.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# Folders with Go files of ours, the nested modules' too.
SOURCES = cmd csi deploy fence proxy sanity
# In modules of their own: who imports ours, or runs the sidecar, links no cloud's SDK, and no API server.
PROGRAMS = cmd/csi-fencepost-agents cmd/csi-fencepost-webhook
STATICCHECK = bin/staticcheck
GOVULNCHECK = bin/govulncheck
# Go's database of vulnerabilities as a module: what is found depends on no day, and
# vuln.go.dev need not be reachable. VULNDB=golang.org/x/vulndb@master is the newest.
VULNDB ?= golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018

.PHONY: help build image dist provenance sign login push sign-image publish release-check chart deps test unit scenarios real known-to-fail check demo catalogue transparency csisanity docs bench soak prove mutants fuzz model lint vulns fmt clean clean-cache

help: ## this list, and what is left on disk
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20
	@echo
	@echo "On disk, removed by make clean-cache unless it is in use:"
	@$(GO) run ./sanity/clean -list

# Without grpcnotrace, grpc's tracing links html/template, with it the linker keeps
# every method of every type, and 20 MiB more are resident.
build: ## bin/csi-fencepost, bin/csi-fencepost-sanity, bin/csi-fencepost-agents, bin/csi-fencepost-webhook (minutes the first time: the clouds' SDKs, the API server)
	$(GO) build -trimpath -tags grpcnotrace -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/csi-fencepost ./cmd/csi-fencepost-sanity
	@set -e; for module in $(PROGRAMS); do (set -x; cd $$module && CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(CURDIR)/bin/ .); done

DATE = $(shell git log -1 --format=%ct 2>/dev/null)
# IMAGE is the image's name with its registry, without a tag: inject puts that in, push pushes there.
RELEASE = $(GO) run ./deploy/image -version "$(or $(VERSION),dev)" -date "$(DATE)" $(if $(IMAGE),-name "$(IMAGE)")

image: ## bin/dist: the image for amd64 and arm64, an OCI archive; needs no container engine
	@$(RELEASE) -image-only

dist: ## bin/dist: the image, the programs, their SBOMs, the chart, the plugin for krew, checksums; the same sources give the same bytes. IMAGE=registry/name: what inject puts in
	@$(RELEASE)

# Whose word the provenance is: in the release workflow that of GitHub's runner, which says so.
BUILDER = $(if $(GITHUB_WORKFLOW_REF),$(GITHUB_SERVER_URL)/$(GITHUB_WORKFLOW_REF))
INVOCATION = $(if $(GITHUB_RUN_ID),$(GITHUB_SERVER_URL)/$(GITHUB_REPOSITORY)/actions/runs/$(GITHUB_RUN_ID)/attempts/$(GITHUB_RUN_ATTEMPT))

provenance: dist ## bin/dist, built now from a clean checkout, and where it is from (SLSA provenance v1)
	@$(GO) run ./deploy/release -version "$(VERSION)" $(if $(IMAGE),-image "$(IMAGE)") $(if $(BUILDER),-builder "$(BUILDER)") $(if $(INVOCATION),-invocation "$(INVOCATION)")

# What signs and pushes, in a module of its own (cosign builds for minutes the first time).
COSIGN = bin/cosign
CRANE = bin/crane
$(COSIGN) $(CRANE): deploy/release/tools/go.mod deploy/release/tools/go.sum
	cd deploy/release/tools && $(GO) build -trimpath -ldflags "-s -w" -o $(CURDIR)/bin/ $(if $(findstring cosign,$@),github.com/sigstore/cosign/v3/cmd/cosign,github.com/google/go-containerregistry/cmd/crane)

# KEY=file: cosign's private key; its passphrase is in COSIGN_PASSWORD or asked for, and no
# service hears of the signature. KEYLESS=1: whoever the OIDC token at hand names, as in the
# release workflow; the signature is in Sigstore's public log.
SIGNER = --yes $(if $(KEY),--key "$(KEY)" --signing-config bin/no-services.json,$(if $(KEYLESS),,$(error whose signature? KEY=file or KEYLESS=1)))
NEEDS_IMAGE = @test -n "$(IMAGE)" || { echo "which image? IMAGE=registry/name, without a tag" >&2; exit 1; }

sign: $(COSIGN) ## bin/dist: the signatures of SHA256SUMS and of the provenance. KEY=file or KEYLESS=1 (see SECURITY.md for who verifies)
	@$(COSIGN) signing-config create --out bin/no-services.json
	@$(COSIGN) sign-blob $(SIGNER) --bundle bin/dist/SHA256SUMS.sigstore.json bin/dist/SHA256SUMS
	@$(COSIGN) attest-blob $(SIGNER) --bundle bin/dist/provenance.sigstore.json --statement "bin/dist/csi-fencepost_$(VERSION).intoto.json"

login: $(CRANE) ## to the registry of IMAGE, as REGISTRY_USER with REGISTRY_PASSWORD, for push and sign-image
	$(NEEDS_IMAGE)
	@printf '%s' "$$REGISTRY_PASSWORD" | $(CRANE) auth login "$(firstword $(subst /, ,$(IMAGE)))" --username "$$REGISTRY_USER" --password-stdin

push: $(CRANE) ## the image of bin/dist to IMAGE, its tag the version, unless that is there and another one
	$(NEEDS_IMAGE)
	@rm -rf bin/layout && mkdir -p bin/layout && tar -xf "bin/dist/csi-fencepost_$(VERSION).oci.tar" -C bin/layout
	@there=$$($(CRANE) digest "$(IMAGE):$(VERSION)" 2>/dev/null); \
	if test -n "$$there" && ! grep -q "$$there" bin/layout/index.json; then \
		echo "$(IMAGE):$(VERSION) is there, and is another image ($$there): a version that somebody may have pulled does not change; make another version" >&2; exit 1; \
	fi
	@$(CRANE) push --image-refs bin/pushed bin/layout "$(IMAGE):$(VERSION)"

sign-image: $(COSIGN) ## the signature of the image that was pushed, and of each platform's. KEY=file or KEYLESS=1
	@$(COSIGN) signing-config create --out bin/no-services.json
	@$(COSIGN) sign $(SIGNER) --recursive "$$(cat bin/pushed)"

publish: ## a draft of the release on GitHub, with what is in bin/dist/SHA256SUMS, and its signatures
	@cd bin/dist && gh release create "$(VERSION)" --draft --verify-tag --title "$(VERSION)" \
		--notes "What has changed: https://github.com/csi-fencepost/csi-fencepost/blob/$(VERSION)/CHANGELOG.md" \
		$$(cut -c67- SHA256SUMS) SHA256SUMS SHA256SUMS.sigstore.json "csi-fencepost_$(VERSION).intoto.json" provenance.sigstore.json

release-check: ## every step of the release workflow but publish, here: a key of the moment, a registry on loopback; then what users type to verify (minutes)
	@$(GO) test -count=1 -v -tags release -timeout 30m -run '^TestAReleaseIsWhat' ./deploy/release

chart: ## bin/dist: the Helm chart; the same sources give the same bytes
	@$(GO) run ./deploy/chart -version "$(or $(VERSION),dev)" -date "$(or $(DATE),0)"

deps: ## what the tests of fencing need, from Debian's archive, and inotify instances for all kubelets (asks for root where something is missing)
	@sh sanity/deps.sh

# How many scenarios are played at once.
PARALLEL ?= 12
GOTEST = $(GO) run ./sanity/gotest
# What the machine lacks for a test is installed, or the test is skipped and named.
SKIP = skip=$$(sh sanity/skip.sh) && without=$$(sh sanity/skip.sh packages 2>/dev/null)
# Races are looked for in all but what computes for minutes on one goroutine, what decides or
# changes manifests and has none, what repeats each call of the spec through the proxy (whose
# own tests look for them), and with the short of the tests that explore; those are run whole
# without the detector, which would make minutes of seconds. The package that waits longest is
# begun first, and a third beside two: the others compute meanwhile.
EXPLORES = ./proxy/sidecar ./fence/observe
COMPUTES = ./deploy/image ./deploy/inject ./fence ./sanity/simulate ./sanity/transparency
RACES = -race -short -p 3 -timeout 45m $${skip:+-skip="$$skip"} ./sanity/kubeapi $$($(GO) list ./... | grep -vE "/(sanity/scenarios|deploy/image|deploy/inject|csi-fencepost/fence|sanity/simulate|sanity/transparency)\$$$$without")
WHOLE = -p 3 -timeout 30m $(EXPLORES) $(COMPUTES)
UNIT = $(WHOLE) -- $(RACES)
SCENARIOS = -count=1 -timeout 60m -parallel $(PARALLEL) $${skip:+-skip="$$skip"} ./sanity/scenarios/...

test: ## everything that guards our behaviour, and what of it took longest (see make prove for what is beyond)
	@set -e; for module in $(PROGRAMS); do (cd $$module && CGO_ENABLED=0 $(GO) test ./...); done
	@$(SKIP) && $(GOTEST) -every -but="^\$$$$without" -- $(UNIT) -- $(SCENARIOS)

unit: ## all tests but the scenarios
	@set -e; for module in $(PROGRAMS); do (cd $$module && CGO_ENABLED=0 $(GO) test ./...); done
	@$(SKIP) && $(GOTEST) -- $(UNIT)

scenarios: ## csi-fencepost on the real control plane (builds it the first time: minutes)
	@$(SKIP) && $(GOTEST) -- $(SCENARIOS)

check: $(STATICCHECK) ## within two minutes: lint and the tests of what changed since origin, and of what imports it; names what it left out
	@$(GOTEST) -check

real: ## every story on real nodes: Kubernetes' own kubelet, containerd, ext4 (as root; needs make deps)
	@$(SKIP) && $(GOTEST) -- -count=1 -timeout 60m -parallel 4 $${skip:+-skip="$$skip"} -run '^Test(Real|Kubelets)' ./sanity/scenarios -beyond

known-to-fail: ## the stories that are known to fail with csi-fencepost: does each still fail as its mark says
	$(GO) test -count=1 -v -timeout 60m -parallel $(PARALLEL) ./sanity/scenarios -run '^TestKnownToFail$$' -known-to-fail

demo: ## Kubernetes alone and csi-fencepost side by side: the double publish; STORY=power-off: 20 databases lose their node; REAL=1, as root: on real nodes, judged by e2fsck
	@$(GO) run ./sanity/demo $(if $(STORY),-story=$(STORY)) $(if $(REAL),-real)

catalogue: ## every story that has no outcome yet, alone and guarded, on real clocks; the page of all. STORIES=known-to-fail, all, none or a,b; KUBERNETES=previous or oldest
	SANITY_KUBERNETES=$(or $(KUBERNETES),newest) $(GO) test -count=1 -timeout 24h -tags catalogue -run '^TestCatalogue$$' -parallel $(PARALLEL) \
		./sanity/scenarios -stories=$(or $(STORIES),missing) -ways=$(or $(WAYS),both) -clocks=$(or $(CLOCKS),real)

transparency: ## every call of the CSI spec, directly and through the proxy: what differs
	@$(GO) run ./sanity/transparency

csisanity: ## csi-sanity on the reference driver, directly and through the proxy
	@$(GO) run ./sanity/csisanity -kubernetes

docs: ## docs/use/flags.md and the fields in docs/use/configure.md from the program itself, what the runbook shows of refusals, docs/vendors/profiles.md from the profiles of drivers, sanity/mutants/guards/GUARDS.md from the table of guards
	@$(GO) run ./sanity/docs
	@$(GO) test ./sanity/docs -count=1 -run TestTheRunbookShowsTheRealTexts -update

bench: ## what the proxy costs, and how quick a failover is, measured side by side; writes sanity/bench/RESULTS.md (hours; needs make deps; go run ./sanity/bench -only=SECTION -o sanity/bench/RESULTS.md: one section)
	$(GO) run ./sanity/bench -o sanity/bench/RESULTS.md

soak: ## attach, move, power off, fail over, come back, in a loop: does anything of the sidecar grow? writes sanity/soak/RESULTS.md; DURATION=2h (needs make deps)
	@$(GO) run ./sanity/soak -duration=$(or $(DURATION),2h) -o sanity/soak/RESULTS.md

prove: ## the whole case for safety; writes sanity/prove/RESULTS.md and the table in docs/proof.md (hours; PROVE=-quick: minutes; PROVE="-reuse": what has not changed is not run again)
	@$(GO) run ./sanity/prove $(PROVE)

mutants: ## what no test would notice: each guard taken out, each comparison turned round (see sanity/mutants)
	@$(GO) run ./sanity/prove -only=mutants

fuzz: ## every fuzz target, each for FUZZTIME (30s)
	@$(GO) run ./sanity/prove -only=fuzzing $(if $(FUZZTIME),-fuzztime=$(FUZZTIME))

model: ## the protocol's model, explored completely by spin, and without each of its guards (minutes; see docs/design/model.md)
	@$(GO) run ./sanity/prove -only=model

lint: $(STATICCHECK) vulns ## gofmt, go vet, staticcheck (see staticcheck.conf), vulns
	@unformatted=$$(gofmt -l $(SOURCES)); test -z "$$unformatted" || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(STATICCHECK) ./...
	@set -e; for module in $(PROGRAMS); do (set -x; cd $$module && CGO_ENABLED=0 $(GO) vet ./... && CGO_ENABLED=0 $(CURDIR)/$(STATICCHECK) ./...); done

vulns: $(GOVULNCHECK) ## known vulnerabilities that the released programs call, by the database in VULNDB
	@db=$$(cd sanity/tools && $(GO) mod download -json $(VULNDB) | sed -n 's/.*"Dir": "\(.*\)",*$$/\1/p') && test -d "$$db/data/osv" || { echo "the database $(VULNDB) cannot be had as a module"; exit 1; }; \
	$(GOVULNCHECK) -db="file://$$db/data/osv" -format json ./cmd/... >bin/vulns.json && $(GO) run ./sanity/vulns <bin/vulns.json && \
	for module in $(PROGRAMS); do (cd $$module && CGO_ENABLED=0 $(CURDIR)/$(GOVULNCHECK) -db="file://$$db/data/osv" -format json ./...) >bin/vulns.json && $(GO) run ./sanity/vulns <bin/vulns.json || exit 1; done

# In a module of its own: the tools' requirements are not the product's.
$(STATICCHECK): sanity/tools/go.mod sanity/tools/go.sum
	cd sanity/tools && $(GO) build -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

$(GOVULNCHECK): sanity/tools/go.mod sanity/tools/go.sum
	cd sanity/tools && $(GO) build -o $(CURDIR)/$@ golang.org/x/vuln/cmd/govulncheck

fmt: ## gofmt
	gofmt -w $(SOURCES)

clean: ## what was built here (the control plane's cache stays: it is shared by all checkouts)
	rm -rf bin

clean-cache: ## what tests, the demo, benches and builds left on disk, of all checkouts, and bin; what is in use stays
	@$(GO) run ./sanity/clean
