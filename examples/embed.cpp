// SPDX-License-Identifier: MIT
// Uses Lockstep in a C++ program: learns which points of a square lie in a circle. Then it
// predicts on another thread, with a copy of the model, which outlives the trainer.
//
//     c++ -std=c++17 embed.cpp -pthread $(pkg-config --cflags --libs lockstep) -o embed
#include <lockstep/lockstep.hpp>

#include <cstdio>
#include <thread>

static const char config[] = R"({
    "data": {"name": "circle"}, "batch_size": 64, "epochs": 20, "run_dir": null,
    "model": {"layers": [{"type": "dense", "out": 16}, {"type": "relu"},
                         {"type": "dense", "out": 2}]},
    "optimizer": {"name": "sgd", "lr": 0.3, "momentum": 0.9}, "devices": "cpu"
})";

// Row r of the data: point number r of a grid of 64 × 64 points, and whether it lies in the circle.
static int read_points(void *, int, const uint32_t *rows, uint32_t count, void *values,
                       void *targets, ls_error *)
{
    for (uint32_t i = 0; i < count; i++) {
        const float x = (rows[i] % 64 - 31.5f) / 32, y = (rows[i] / 64 - 31.5f) / 32;
        static_cast<float *>(values)[2 * i] = x;
        static_cast<float *>(values)[2 * i + 1] = y;
        static_cast<int32_t *>(targets)[i] = x * x + y * y < 0.5f;
    }
    return LS_OK;
}

int main()
try {
    auto circle = lockstep::sized<ls_data_source>();
    circle.name = "circle";
    circle.channels = circle.classes = 2;
    circle.height = circle.width = 1;
    circle.train_rows = circle.test_rows = 64 * 64;
    circle.read = read_points;
    circle.row_type = LS_ROW_F32;
    auto train = [&circle] {
        lockstep::trainer trainer(config, circle);
        trainer.run();
        std::printf("accuracy %.2f\n", trainer.result().metric_value);
        return trainer.model();
    };
    const lockstep::model model = train();

    std::thread([model] {
        const float points[] = {0.1f, 0.2f, 0.9f, -0.8f};
        const auto p = model.predict(points, LS_ROW_F32, 2);
        std::printf("in the circle: %.2f and %.2f\n", p[1], p[3]);
    }).join();
} catch (const lockstep::error &e) {
    std::fprintf(stderr, "embed: %s (%s)\n", e.what(), ls_status_name(e.status));
    return 1;
}
