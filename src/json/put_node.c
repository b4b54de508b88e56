#include "json/json.h"

void ls_json_put_node(ls_json_writer *w, const char *key, const cJSON *node)
{
    if (cJSON_IsObject(node) || cJSON_IsArray(node)) {
        if (cJSON_IsObject(node))
            ls_json_open_object(w, key);
        else
            ls_json_open_array(w, key);
        for (const cJSON *child = node->child; child; child = child->next)
            ls_json_put_node(w, cJSON_IsObject(node) ? child->string : NULL, child);
        ls_json_close(w);
    } else if (cJSON_IsString(node)) {
        ls_json_put_string(w, key, node->valuestring);
    } else if (cJSON_IsNumber(node)) {
        ls_json_put_double(w, key, node->valuedouble);
    } else if (cJSON_IsBool(node)) {
        ls_json_put_bool(w, key, cJSON_IsTrue(node));
    } else {
        ls_json_put_null(w, key);
    }
}
