# versity/versitygw from Python's standard library: a folder for each bucket, and no signature is checked.
FROM docker.io/library/python:3.11-slim-bookworm
COPY versitygw.py /usr/local/bin/versitygw
RUN chmod +x /usr/local/bin/versitygw
