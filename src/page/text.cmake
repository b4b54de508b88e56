# cmake -D HTML=report.html -D SCRIPT=report.js -D OUT=text.c -P text.cmake
#
# Writes the page, with the script inserted, as an array of C. It converts the files' hexadecimal digits by
# string(REGEX), so that it needs no program that a minimal system lacks.
file(READ ${HTML} page HEX)
file(READ ${SCRIPT} script HEX)
string(HEX "<!--SCRIPT-->" mark)
string(REPLACE "${mark}" "${script}" page "${page}")
string(REGEX REPLACE "(................................)" "\\1\n" page "${page}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," page "${page}")
file(WRITE ${OUT} "extern const unsigned char ls_page_text[];\n\nconst unsigned char ls_page_text[] = {\n${page}0};\n")
