# Kills, stops or continues the processes whose working directory is $1 or below it. Fails if there are none.
#
# $2: `kill` (or none), `stop`, `continue`, or `quit`, which sends SIGQUIT, after which PostgreSQL removes its shared memory.
directory=$1
# Root of a container may not read the directory of another user's process.
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=nobody --regid=$(id -g nobody) --clear-groups"
pids() { $as find /proc/[0-9]*/cwd \( -lname "$directory" -o -lname "$directory/*" \) 2>/dev/null | cut -d / -f 3; }
# Standing still, a process neither makes another nor learns of the end of one, whose number could be somebody else's then.
kill -STOP $(pids) 2>/dev/null
pids=$(pids)
[ -n "$pids" ] || exit 1
case ${2:-kill} in
kill) kill -KILL $pids ;;
stop) ;;
continue) kill -CONT $pids ;;
quit) kill -QUIT $pids; kill -CONT $pids ;;
*) exit 2 ;;
esac 2>/dev/null
exit 0
