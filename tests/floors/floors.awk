# SPDX-License-Identifier: MIT
# Checks C sources against the coding rules and prints one line for each violation; the exit status
# is 1 if there is any. Files are named relative to the project's root.

function names(list, set,    words, i, n) {
    n = split(list, words, " ")
    for (i = 1; i <= n; i++)
        set[words[i]] = 1
}

# room(<name>, <rooms it sees>, <floors of the public headers it sees besides>)
function room(name, below, headers,    i, n, words) {
    rooms[name] = 1
    below_text[name] = below
    n = split(below, words, " ")
    for (i = 1; i <= n; i++)
        sees[name, words[i]] = 1
    sees[name, name] = 1
    n = split(headers, words, " ")
    for (i = 1; i <= n; i++)
        sees_headers[name, words[i]] = 1
}

BEGIN {
    room("base", "")
    room("sync", "base")
    room("merge", "base sync", "device") # linked into plugins
    room("pool", "base sync")
    room("json", "base")
    room("hash", "base")
    room("store", "base json hash")
    room("formats", "base json hash store")
    room("device", "base sync pool")
    room("cpu", "base sync device", "pool")
    room("cuda", "base sync merge", "device")
    room("tcp", "base hash", "cluster") # a transport, in the library
    room("cluster", "base sync merge pool device")
    room("mpi", "base", "cluster") # a plugin
    room("comm", "base sync merge pool json hash device cluster")
    room("nn", "base sync merge pool json formats device")
    room("prep", "base json")
    room("onnx", "base json hash prep store formats device merge nn") # export and import
    room("data", "base sync pool json prep hash store formats device")
    low = "base sync merge pool json prep hash store formats device cluster comm nn onnx data"
    room("config", low, "train") # it reads the options
    room("engine", "base sync merge pool hash device cluster comm nn data") # no config, no record
    room("records", low " config engine", "train") # they tell the summary and the result
    room("checkpoint", low " config records", "train")
    run = "config engine records checkpoint"
    room("model", low " config engine records checkpoint", "train")
    run = run " model"
    room("train", low " cpu " run)
    room("page", low " cpu " run " train")
    room("picture", "base data", "train") # a library beside the library; in the program, too
    room("http", "") # examples/service has it, too
    room("cli", low " cpu " run " train page http")

    # What the verbs in cli may include: the model, what draws and prints, and helpers that know
    # neither models nor rows; of other rooms only the headers below, each of which does the whole
    # work of a verb in one call, or has what the program shows.
    names("cli base json model page http", verb_rooms)
    verb_header["config/given.h"] # init: ls_given_data_read, the keys of --set
    verb_header["config/origin.h"] # init --from: ls_origin_read
    verb_header["config/keys.h"] # --help config prints the table of keys
    verb_header["config/metrics.h"] # names of the metrics that eval prints
    verb_header["data/columns.h"] # lines about a table's columns
    verb_header["data/inspect.h"] # init: ls_inspect
    verb_header["data/pack.h"] # pack: ls_folder_pack
    verb_header["device/registry.h"] # devices, bench and sweep name devices
    verb_header["store/durable.h"] # results in a file
    verb_header["train/range_test.h"] # find-lr: the test of rates
    verb_header["train/shown.h"] # records and layers of a run in progress

    # Headers that are for the files of their room alone.
    hidden["model/inference.h"] = "model"
    hidden["engine/exchange.h"] = hidden["engine/state.h"] = hidden["engine/worker.h"] = "engine"

    # The floor a public header belongs to.
    floor["status"] = floor["host"] = floor["version"] = floor["split"] = "base"
    floor["pool"] = "pool"
    floor["sys/plugin"] = floor["sys/communicator"] = floor["device"] = floor["device_pool"] = "device"
    floor["cluster"] = floor["sys/transport"] = "cluster"
    floor["collective"] = "comm"
    floor["data_source"] = "data"
    floor["sys/trainer"] = floor["trainer"] = floor["model"] = "train"
    floor["picture"] = "picture"

    # The rooms that may include a library's headers. A room that lends a library speaks its
    # types in its own headers: whoever sees the room may use them too.
    owner["cuda"] = owner["cudnn"] = owner["cublas"] = owner["nccl"] = "cuda"
    owner["cjson/"] = "json"
    lent["cjson/"] = 1
    owner["nettle/"] = "hash"
    owner["mpi.h"] = "mpi"
    owner["zlib.h"] = "data hash"
    owner["spng.h"] = owner["jpeglib.h"] = owner["jerror.h"] = owner["webp/"] = "data"
    owner["microhttpd.h"] = "cli http"

    # What a library must not do to the program it is part of; only the program in cli may.
    names("exit _exit _Exit quick_exit atexit abort printf vprintf puts putchar perror " \
          "getenv secure_getenv setenv unsetenv putenv setlocale signal sigaction raise", banned)
    names("stdin stdout stderr environ", banned_word)
}

function breach(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    breaches++
}

# The line without comments and the contents of strings; what an #include names is kept.
function code_of(line,    out, i, n, c, two, keep) {
    out = ""
    keep = !in_comment && line ~ /^[ \t]*#[ \t]*include/
    quote = ""
    n = length(line)
    for (i = 1; i <= n; i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        if (in_comment) {
            if (two == "*/") {
                in_comment = 0
                out = out " "
                i++
            }
        } else if (quote != "") {
            if (c == "\\")
                i++
            else if (c == quote)
                quote = ""
        } else if (two == "/*") {
            in_comment = 1
            i++
        } else if (two == "//") {
            break
        } else if (!keep && (c == "\"" || c == "'")) {
            quote = c
        } else {
            out = out c
        }
    }
    return out
}

FNR == 1 {
    in_comment = 0
    n = split(FILENAME, path, "/")
    public = path[1] == "include"
    here = path[2]
    if (public) {
        here = FILENAME
        sub(/^include\/lockstep\//, "", here)
        sub(/\.h$/, "", here)
        if (here in floor)
            here = floor[here]
        else
            breach("this public header has no floor: give it one in tests/floors/floors.awk")
    } else if (n < 3 || !(here in rooms)) {
        breach("this file is in no room: see the table in tests/floors/floors.awk")
    }
}

function may_use(name, prefix) {
    return !public && (index(" " owner[prefix] " ", " " name " ") > 0 || (prefix in lent && (name, owner[prefix]) in sees))
}

function check_library(name, text,    prefix) {
    for (prefix in owner)
        if (index(tolower(text), prefix) == 1 && !may_use(name, prefix))
            breach("<" text "> is for src/" owner[prefix] " only" \
                   (prefix in lent ? ", and for rooms that see it" : ""))
}

function check_include(text, quoted,    target) {
    target = text
    if (quoted && public) {
        breach("a public header includes other public headers as <lockstep/...>")
    } else if (quoted) {
        sub(/\/.*/, "", target)
        if (text in hidden && here != hidden[text])
            breach("\"" text "\" is for src/" hidden[text] " only")
        if (here == "cli" && !verb_may(text))
            breach("a verb must not include \"" text "\": src/model does the work, or a header " \
                   "that tests/floors/floors.awk lists for verbs")
        if (!(target in rooms))
            breach("\"" text "\": write the path from src/, as in \"base/error.h\"")
        else if (!((here, target) in sees))
            breach(here " must not include " target "/; it sees: " \
                   (below_text[here] == "" ? "nothing" : below_text[here]))
    } else if (index(text, "lockstep/") == 1) {
        sub(/^lockstep\//, "", target)
        sub(/\.h$/, "", target)
        if (!(target in floor))
            breach("<" text "> has no floor: give it one in tests/floors/floors.awk")
        else if (!((here, floor[target]) in sees) && !((here, floor[target]) in sees_headers))
            breach((public ? "a header of " : "") here " must not include <" text \
                   ">, which belongs to " floor[target])
    } else {
        check_library(here, text)
    }
}

function verb_may(header,    place) {
    place = header
    sub(/\/.*/, "", place)
    return (place in verb_rooms) || (header in verb_header)
}

# Stores which functions of the library a header declares: their lines begin without a space. A call
# in cli is judged at the end, when all headers were read.
function note_functions(code,    rest, name, header) {
    header = FILENAME
    sub(/^src\//, "", header)
    rest = code
    while (match(rest, /ls_[a-z0-9_]+[ \t]*\(/)) {
        name = substr(rest, RSTART, RLENGTH)
        sub(/[ \t]*\($/, "", name)
        if (RSTART == 1 || substr(rest, RSTART - 1, 1) !~ /[A-Za-z0-9_]/) {
            if (here == "cli" && !public) {
                if (!(name in called))
                    called[name] = FILENAME ":" FNR
                if (code ~ /^[A-Za-z]/ && substr(code, 1, index(code, name) - 1) !~ /[({=]/)
                    breach(name "() has the prefix of the library: names of cli begin with cli_")
            } else if (header ~ /\.h$/ && code ~ /^[A-Za-z_]/) {
                if (public || verb_may(header))
                    open_to_verbs[name] = 1
                else if (!(name in declared))
                    declared[name] = header
            }
        }
        rest = substr(rest, RSTART + RLENGTH)
    }
}

function check_verbs(    name) {
    for (name in called)
        if (!(name in open_to_verbs) && (name in declared)) {
            print called[name] ": a verb must not call " name "(), which is declared in \"" \
                  declared[name] "\""
            breaches++
        }
}

function check_calls(code,    rest, word, before, at, after) {
    rest = code
    before = ""
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]*/)) {
        at = RSTART
        word = substr(rest, RSTART, RLENGTH)
        if (at > 1)
            before = substr(rest, at - 1, 1)
        after = substr(rest, at + RLENGTH)
        # A member of that name, as in comm->abort(...), is something else.
        if (before != "." && before != ">") {
            if ((word in banned) && after ~ /^[ \t]*\(/)
                breach(word "() is for src/cli only")
            if (word in banned_word)
                breach(word " is for src/cli only")
        }
        before = substr(word, length(word), 1)
        rest = after
    }
}

{
    code = code_of($0)
    if (code ~ /^[ \t]*#[ \t]*include/) {
        text = code
        sub(/^[ \t]*#[ \t]*include[ \t]*/, "", text)
        quoted = substr(text, 1, 1) == "\""
        gsub(/^["<]|[">][ \t]*$/, "", text)
        check_include(text, quoted)
    } else if (code ~ /^[ \t]*#[ \t]*(if|elif)/) {
        if (toupper(code) ~ /CUDA|CUDNN|CUBLAS|NCCL/ && here != "cuda")
            breach("conditions on CUDA are for src/cuda only")
    } else {
        if (code ~ /ls_/)
            note_functions(code)
        if (!public && here != "cli")
            check_calls(code)
    }
}

END {
    check_verbs()
    exit breaches > 0
}
