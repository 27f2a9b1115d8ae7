# python:3.11-slim-bookworm from Debian's packages, on the bare system that tests/containers/images.py makes.
FROM localhost/podium-stand-in/debian
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3-dev python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED \
    && ln -s python3 /usr/bin/python
