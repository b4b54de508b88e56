/* The report's style sheet. */
#ifndef TOOLS_REPORT_STYLE_H
#define TOOLS_REPORT_STYLE_H

extern const char ls_report_style[];

#endif
