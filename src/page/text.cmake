# SPDX-License-Identifier: MIT
# cmake -D HTML=page.html -D "SCRIPTS=chart.js|report.js" -D STYLE=page.css -D NAME=ls_page_text -D OUT=text.c -P text.cmake
#
# Writes a page, with its style and scripts inserted, as an array of C. It converts the files' hexadecimal digits by
# string(REGEX), so that it needs no program that a minimal system lacks.
file(READ ${HTML} page HEX)
string(REPLACE "|" ";" SCRIPTS "${SCRIPTS}")
set(script "")
foreach(file ${SCRIPTS})
  file(READ ${file} text HEX)
  string(APPEND script "${text}")
endforeach()
file(READ ${STYLE} style HEX)
string(HEX "<!--SCRIPT-->" mark)
string(REPLACE "${mark}" "${script}" page "${page}")
string(HEX "<!--STYLE-->" mark)
string(REPLACE "${mark}" "${style}" page "${page}")
string(REGEX REPLACE "(................................)" "\\1\n" page "${page}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," page "${page}")
file(WRITE ${OUT} "extern const unsigned char ${NAME}[];\n\nconst unsigned char ${NAME}[] = {\n${page}0};\n")
