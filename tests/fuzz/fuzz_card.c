/* SPDX-License-Identifier: MIT */
/* The card of a model: an accepted card means what its text says, and the model in it is read or
 * refused. */
#include "config/card.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static const char name[] = "weights.safetensors";

static const cJSON *of(const ls_card *c, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(ls_json_root(c->config.doc), key);
}

static void check_card(const ls_card *c)
{
    const int sides[] = {c->input.c, c->input.h, c->input.w};
    const ls_gather *p = &c->config.preprocessing;
    for (int i = 0; i < 3; i++)
        fuzz_check(cJSON_GetNumberValue(cJSON_GetArrayItem(of(c, "input"), i)) == sides[i] &&
                       sides[i] > 0,
                   "the input is the text's");
    fuzz_check(cJSON_GetNumberValue(of(c, "classes")) == c->classes && c->classes > 0,
               "the classes are the text's");
    fuzz_check(p->floats == cJSON_IsTrue(of(c, "floats")), "what rows are made of is the text's");
    fuzz_check(p->targets == (cJSON_IsTrue(of(c, "targets")) ? c->classes : 0),
               "what outputs are is the text's");
    for (int i = 0; c->names && i < c->classes; i++)
        fuzz_check(ls_card_class_name(c, i) != NULL, "each class has a name, or none");
    fuzz_check(!c->features || cJSON_IsArray(c->features), "features are an array");
}

static void check_model(const ls_card *c)
{
    ls_network *model = NULL;
    ls_error err = {0};
    int status =
        ls_network_parse(&model, c->config.doc, c->config.model, c->input, c->classes, NULL, &err);
    if (status != LS_OK) {
        fuzz_check(model == NULL, "a refusal leaves nothing behind");
        if (status != LS_EINVAL) /* an error about sizes does not name the file */
            fuzz_check_refusal(status, &err, name);
        return;
    }
    fuzz_check(memcmp(&model->input, &c->input, sizeof c->input) == 0 &&
                   model->classes == c->classes,
               "the model is of the card's sizes");
    ls_network_destroy(model, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_card card;
    ls_error err = {0};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0'; /* a text in a file of weights: it has no zero within */
    int status = ls_card_parse(&card, name, text, NULL, &err);
    if (status == LS_OK) {
        check_card(&card);
        check_model(&card);
        ls_card_fini(&card);
    } else {
        fuzz_check(status != LS_ECONFIG, "a file that is damaged is no config");
        fuzz_check_refusal(status, &err, name);
        fuzz_check(fuzz_names_place(err.text, name), "a refusal names line and column");
    }
    free(text);
    return 0;
}
