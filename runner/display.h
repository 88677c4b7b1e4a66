/*
 * display.h - rich output of a Python cell: figures and other images become files of the workspace,
 * plot_1.png and so on; everything is told as RESULT or DISPLAY, and what can be read as text is printed as
 * well.
 */
#pragma once

#include "runner/execution.h"

#define DISPLAY_FILE_MAX ((size_t)48 * 1024 * 1024)

struct display_names { /* one for the life of the sandbox: a name is not given to two pictures */
    unsigned plot, display;
};

/* Takes the content of a display_data or execute_result message; reads it only. */
void display_take(struct execution *x, struct display_names *names, enum frame_type type, json_t *content);

/* Decodes base64, passing over white space. ERR_INVALID when it is something else. */
int display_decode_base64(const char *text, size_t len, struct buf *out, struct error *err) MUST_CHECK;
/* "<Figure size 640x480 with 1 Axes>", "<IPython.core.display.HTML object>": says nothing to a reader. */
bool display_is_object_repr(const char *text);
