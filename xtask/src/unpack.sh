# Unpacks Debian packages, with all that they depend on, into a directory, as any user. Installs nothing.
#
# Run by `cargo xtask` as: sh -c <this> unpack DIRECTORY KEYS SUITE PACKAGES BIN PROGRAMS
# The programs are in the directory BIN of what is unpacked.
set -eu
directory=$1 keys=$2 suite=$3 packages=$4 bin=$5 programs=$6

# Complete or not there: another run may want it at the same time, and a signal may end this one.
mkdir -p "${directory%/*}"
work=$(mktemp -d "${directory%/*}/.unpacking-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$work"
mkdir -p "$work/cache/archives/partial" "$work/state/lists/partial" "$work/unpacked"

# Debian's mirror in the machine's own sources, if they have one.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | head -n 1)
echo "deb [signed-by=$keys] ${mirror:-http://deb.debian.org/debian} $suite main" >"$work/sources.list"
# As on a machine that has no packages.
: >"$work/status"
get() {
    # Nothing of the machine's but how it reaches the network. A mirror that was not renewed lately will do for tests.
    apt-get -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o Dir::State="$work/state" \
        -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" -o APT::Sandbox::User= \
        -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}
get update
# Not quoted: several packages.
get install --yes --download-only --no-install-recommends $packages
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$work/unpacked"
done
cd "$work/unpacked"
# No program needs them.
rm -rf usr/share/doc usr/share/man usr/share/perl

# A script in the place of each program starts it with the C library that it was unpacked with.
loader=$(ls usr/lib/*/ld-linux*.so.* | head -n 1)
[ -n "$loader" ]
for program in $programs; do
    file=$(realpath --relative-to=. "$bin/$program")
    mv "$file" "$file.unpacked"
    cat >"$file" <<END
#!/bin/sh
exec '$directory/$loader' --argv0 "\$0" --library-path '$directory/${loader%/*}' '$directory/$file.unpacked' "\$@"
END
    chmod 755 "$file"
done
# Another run may have been faster.
mv -T "$work/unpacked" "$directory" || [ -d "$directory" ]
