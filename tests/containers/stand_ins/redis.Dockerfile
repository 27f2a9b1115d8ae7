# redis:7 from Debian's packages.
FROM localhost/podium-stand-in/debian
RUN apt-get update && apt-get install --yes --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/*
WORKDIR /data
CMD ["redis-server"]
