# cmake -D HTML=report.html -D SCRIPT=report.js -D OUT=text.c -P text.cmake: the page as an array of C. Hex
# digits go by one at a time through string(REGEX): no program is needed that a bare system lacks.
file(READ ${HTML} page HEX)
file(READ ${SCRIPT} script HEX)
string(HEX "<!--SCRIPT-->" mark)
string(REPLACE "${mark}" "${script}" page "${page}")
string(REGEX REPLACE "(................................)" "\\1\n" page "${page}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," page "${page}")
file(WRITE ${OUT} "extern const unsigned char ls_page_text[];\n\nconst unsigned char ls_page_text[] = {\n${page}0};\n")
