# Kills, stops or continues the processes whose numbers are in $files. Fails if there are none.
#
# `cargo xtask` writes it with the variables `files` and `directory` set. Its argument: `kill` (or none), `stop`, `continue`, or `quit`,
# which sends SIGQUIT, after which PostgreSQL removes its shared memory.
pids=
for file in $files; do
    pid=$(head -n 1 "$file" 2>/dev/null) && [ -n "$pid" ] || continue
    # Not a process of others that has the number by now.
    case $(readlink "/proc/$pid/cwd") in "$directory"*) ;; *) continue ;; esac
    # Their children too: PostgreSQL's would go on serving until they notice. Standing still, a process neither makes another nor
    # learns of the end of one, whose number could be somebody else's then.
    kill -STOP "$pid" 2>/dev/null || continue
    pids="$pids $pid $(cat "/proc/$pid/task/"*/children)"
done
[ -n "$pids" ] || exit 1
case ${1:-kill} in
kill) kill -KILL $pids ;;
stop) kill -STOP $pids ;;
continue) kill -CONT $pids ;;
quit) kill -QUIT $pids; kill -CONT $pids ;;
*) exit 2 ;;
esac 2>/dev/null
exit 0
