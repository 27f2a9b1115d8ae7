# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB make the database once; files of docker-entrypoint-initdb.d follow.
set -eu
data=/var/lib/postgresql/data
mkdir -p "$data" && chown postgres "$data" && chmod 700 "$data"
if [ ! -f "$data/complete" ]; then
    find "$data" -mindepth 1 -delete
    printf %s "$POSTGRES_PASSWORD" >/tmp/password && chown postgres /tmp/password
    setpriv --reuid=postgres --regid=postgres --clear-groups sh -eu -c '
        initdb --pgdata="$0" --encoding=UTF8 --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --auth-local=trust
        echo "host all all all scram-sha-256" >>"$0/pg_hba.conf"
        pg_ctl --pgdata="$0" --wait --options="-c listen_addresses= -c unix_socket_directories=/tmp" start
        createdb --host=/tmp --username="$POSTGRES_USER" "$POSTGRES_DB"
        for file in /docker-entrypoint-initdb.d/*.sql; do
            psql --host=/tmp --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --set=ON_ERROR_STOP=1 --file="$file"
        done
        pg_ctl --pgdata="$0" --wait stop
        touch "$0/complete"' "$data"
    rm /tmp/password
fi
mkdir -p /var/run/postgresql && chown postgres /var/run/postgresql
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D "$data" -c 'listen_addresses=*'
