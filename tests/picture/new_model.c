/* SPDX-License-Identifier: MIT */
#include "picture/new_model.h"

#include "ref/ref.h"

#include <lockstep/data_source.h>
#include <lockstep/trainer.h>

static const char config[] =
    "{\"data\": {\"name\": \"none\"}, \"batch_size\": 4, \"run_dir\": null, \"devices\": \"ref:1\","
    " \"init\": {\"name\": \"normal\", \"std\": 0.01},"
    " \"optimizer\": {\"name\": \"sgd\", \"lr\": 0.1},"
    " \"model\": {\"layers\": [{\"type\": \"flatten\"}, {\"type\": \"dense\", \"out\": 3}]}}";

/* Lives as long as the process, as any model may. */
static const ls_registry *reference(void)
{
    static ls_registry *registry;
    if (!registry && (ls_registry_create(&registry, NULL, NULL) != LS_OK ||
                      ls_registry_add(registry, ls_ref_backend(), NULL) != LS_OK))
        return NULL;
    return registry;
}

ls_model *new_model(int channels, int height, int width, int floats, ls_error *err)
{
    const ls_data_source source = {.size = sizeof source,
                                   .name = "none",
                                   .channels = channels,
                                   .height = height,
                                   .width = width,
                                   .classes = 3,
                                   .streamed = 1,
                                   .row_type = floats ? LS_ROW_F32 : LS_ROW_U8};
    const ls_data_source *const sources[] = {&source};
    const ls_trainer_options o = {.size = sizeof o,
                                  .config_text = config,
                                  .sources = sources,
                                  .source_count = 1,
                                  .registry = reference()};
    ls_trainer *trainer;
    ls_model *model = NULL;
    if (ls_trainer_open(&trainer, &o, err) != LS_OK)
        return NULL;
    if (ls_trainer_model(&model, trainer, err) != LS_OK)
        model = NULL;
    ls_trainer_close(trainer, NULL);
    return model;
}
