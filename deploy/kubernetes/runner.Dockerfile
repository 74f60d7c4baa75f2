# docker build -f deploy/kubernetes/runner.Dockerfile -t REGISTRY/hanse-run:VERSION build/release
FROM scratch
COPY hanse-run /hanse-run
ENTRYPOINT ["/hanse-run"]
