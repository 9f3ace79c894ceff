# Installs Debian packages, as root, without making or starting a server of the machine's own.
#
# Run by `cargo xtask` as: sh -c <this> install PACKAGE...
set -eu
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1

# Stopping halfway would leave the machine with half-installed packages.
trap '' INT TERM HUP

policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d
restore() {
    if [ "${own_policy:-}" = yes ]; then rm -f "$policy"; fi
    rm -f "$clusters/diesel-locks.conf"
    rmdir -p --ignore-fail-on-non-empty "$clusters"
}
trap restore EXIT

get() {
    # --no-remove: rather fail than replace something that the machine has, such as MySQL by MariaDB.
    apt-get install -y -qq --no-install-recommends --no-remove -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

# No daemon starts while this file says so.
if ! [ -e "$policy" ]; then
    own_policy=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# One unreachable source of several does not matter; if it does, the installation fails and says so.
apt-get update -qq || true

# PostgreSQL's package would make and start a cluster.
mkdir -p "$clusters"
echo 'create_main_cluster = false' >"$clusters/diesel-locks.conf"
get "$@"
# The machine would start them with its next boot.
for service in pgbouncer etcd patroni; do
    case " $* " in
    *" $service "* | *" $service-server "*) update-rc.d "$service" disable >/dev/null 2>&1 || true ;;
    esac
done

# Small container images leave out PostgreSQL's German messages.
for server in /usr/lib/postgresql/*/bin/postgres; do
    [ -e "$server" ] || continue
    version=${server#/usr/lib/postgresql/}
    version=${version%%/*}
    file=de/LC_MESSAGES/postgres-$version.mo
    if [ -e "/usr/share/locale/$file" ] || [ -e "/usr/share/locale-langpack/$file" ]; then continue; fi
    if grep -qx ID=ubuntu /etc/os-release; then
        get language-pack-de
        continue
    fi
    # The package has the file, but dpkg was told to leave translations out. Only this file is added: installing
    # the package again would restart the machine's own server.
    work=$(mktemp -d)
    chmod 755 "$work"
    if (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "postgresql-$version"); then
        dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C / "./usr/share/locale/$file"
    fi
    rm -rf "$work"
done
