/* report.html with report.js in it, as text: made by the build. */
#ifndef PAGE_TEXT_H
#define PAGE_TEXT_H

extern const unsigned char ls_page_text[];

#endif
