# SPDX-License-Identifier: MIT
# circles.awk -v room=NAME -v most=N FILE.c...: reads the sources of one directory ("room") and its
# sub-folders. Prints each cycle of more than N files that call each other's external functions,
# with the calls; the exit status is 1 if there is one.
#
# It relies on the layout of .clang-format: only the body of a function begins with a brace alone in
# the first column. A name that a file defines as a static function is local to that file.

# The line without comments and strings.
function code_of(line,    out, i, c, two) {
    out = ""
    quote = ""
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        two = substr(line, i, 2)
        if (in_comment) {
            if (two == "*/") {
                in_comment = 0
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
        } else if (c == "\"" || c == "'") {
            quote = c
        } else {
            out = out c
        }
    }
    return out
}

# The function that `head`, what stands before a body, declares; "" if it is none.
function name_in(head) {
    if (!match(head, /[A-Za-z_][A-Za-z0-9_]*[ ]*\(/))
        return ""
    head = substr(head, RSTART, RLENGTH - 1)
    sub(/ +$/, "", head)
    return head
}

function note_uses(code,    word) {
    while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(code, RSTART, RLENGTH)
        if (!((file, word) in uses)) {
            uses[file, word] = 1
            used[file, ++words[file]] = word
        }
        code = substr(code, RSTART + RLENGTH)
    }
}

FNR == 1 {
    file = ++files
    path[file] = FILENAME
    in_comment = 0
    head = ""
}

{
    code = code_of($0)
    if (code ~ /^[ \t]*#/)
        next
    note_uses(code)
    if (code ~ /^\{/) {
        name = name_in(head)
        if (name != "" && head ~ /^static /)
            own[file, name] = 1
        else if (name != "")
            home[name] = file
        head = ""
    } else if (code ~ /[;}]/) {
        head = ""
    } else {
        head = head (head == "" ? "" : " ") code
    }
}

END {
    for (a = 1; a <= files; a++)
        for (i = 1; i <= words[a]; i++) {
            word = used[a, i]
            if (!(word in home) || home[word] == a || (a, word) in own)
                continue
            b = home[word]
            calls[a, b] = calls[a, b] (calls[a, b] == "" ? "" : ", ") word
            reaches[a, b] = 1
        }
    for (k = 1; k <= files; k++)
        for (a = 1; a <= files; a++)
            if ((a, k) in reaches)
                for (b = 1; b <= files; b++)
                    if ((k, b) in reaches)
                        reaches[a, b] = 1
    for (a = 1; a <= files; a++) {
        if (a in told)
            continue
        count = 0
        for (b = a; b <= files; b++)
            if (a == b || ((a, b) in reaches && (b, a) in reaches))
                circle[++count] = b
        for (i = 1; i <= count; i++)
            told[circle[i]] = 1
        if (count <= most)
            continue
        found = 1
        printf "src/%s: %d files call each other in a circle; at most %d may: move what is in the wrong file\n", \
            room, count, most
        for (i = 1; i <= count; i++)
            for (k = 1; k <= count; k++)
                if ((circle[i], circle[k]) in calls)
                    printf "    %s calls %s: %s\n", path[circle[i]], path[circle[k]], calls[circle[i], circle[k]]
    }
    exit found
}
