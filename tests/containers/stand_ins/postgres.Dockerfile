# postgres:16 from Debian's packages: the version of Postgres is Debian's. Initializes the data folder as that image does.
FROM localhost/podium-stand-in/debian
RUN apt-get update \
    && apt-get install --yes --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/
COPY postgres.sh /usr/local/bin/
ENTRYPOINT ["sh", "/usr/local/bin/postgres.sh"]
STOPSIGNAL SIGINT
