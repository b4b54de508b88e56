// SPDX-License-Identifier: MIT
// A learner that runs for months: it learns from events of 12 features, 3 % of which are positive,
// predicts in two threads meanwhile, and prints Prometheus' text format. Started again with the
// same file it goes on with the weights, the scales of the features, the optimizer's state and the
// learning rate that the file keeps.
//
//     c++ -std=c++17 embed_learner.cpp -pthread $(pkg-config --cflags --libs lockstep) -o learner
#include <lockstep/lockstep.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

enum { FEATURES = 12, BATCH = 256, COOL_AFTER = 300 };

static const char config[] = R"({
    "data": {"name": "events", "standardize": true, "scale_rows": 4096}, "batch_size": 256,
    "model": {"layers": [{"type": "dense", "out": 32}, {"type": "relu"},
                         {"type": "dense", "out": 2}]},
    "optimizer": {"name": "adamw", "lr": 0.01}, "devices": "cpu:1", "run_dir": null
})";

struct events { // a minibatch
    float rows[BATCH][FEATURES], weights[BATCH];
    int32_t classes[BATCH];
    void draw(std::mt19937 &random)
    {
        std::normal_distribution<float> normal;
        for (int i = 0; i < BATCH; i++) {
            float score = 0, scale = 1e-6f; // the features have different scales
            for (int k = 0; k < FEATURES; k++, scale *= 10) {
                const float x = normal(random);
                score += static_cast<float>(k % 3 - 1) * x;
                rows[i][k] = scale * (x + 1);
            }
            classes[i] = score > 5.32f;         // 1.88 standard deviations
            weights[i] = classes[i] ? 10 : 1.f; // a positive that is missed costs ten times as much
        }
    }
};

static std::mutex lock; // guards `newest`
static std::unique_ptr<lockstep::model> newest;
static std::atomic<bool> stop{false};

static void publish(lockstep::trainer &trainer)
{
    auto fresh = std::make_unique<lockstep::model>(trainer.model());
    const std::lock_guard<std::mutex> held(lock);
    newest.swap(fresh);
}
struct server { // a thread that predicts event by event
    std::vector<double> seconds;
    int caught = 0, positive = 0;
    void serve(unsigned seed)
    {
        std::mt19937 random(seed);
        events e;
        for (int i = 0; !stop; i = (i + 1) % BATCH) {
            if (i == 0) e.draw(random);
            lock.lock();
            const lockstep::model model = *newest;
            lock.unlock();
            const auto start = std::chrono::steady_clock::now();
            const auto p = model.predict(e.rows[i], LS_ROW_F32);
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            seconds.push_back(took.count());
            positive += e.classes[i];
            caught += e.classes[i] && p[1] > 0.5f;
        }
    }
};

int main(int argc, char **argv)
try {
    const char *file = argc > 1 ? argv[1] : "learner.safetensors";
    auto source = lockstep::sized<ls_data_source>();
    source.name = "events", source.channels = FEATURES, source.row_type = LS_ROW_F32;
    source.height = source.width = source.streamed = source.weighted = 1, source.classes = 2;
    const ls_data_source *sources[] = {&source};
    auto options = lockstep::sized<ls_trainer_options>();
    options.config_text = config, options.sources = sources, options.source_count = 1;
    lockstep::trainer trainer(options);
    if (std::FILE *saved = std::fopen(file, "rb")) {
        std::fclose(saved), trainer.load(file);
    }
    publish(trainer);
    server s[2];
    std::thread threads[2];
    for (unsigned i = 0; i < 2; i++) threads[i] = std::thread([&s, i] { s[i].serve(i); });
    auto r = lockstep::sized<ls_step_result>();
    std::mt19937 random(static_cast<unsigned>(trainer.result().steps) + 3);
    events e;
    for (int left = argc > 2 ? std::atoi(argv[2]) : 400; left > 0; left--) {
        e.draw(random);
        r = trainer.step(e.rows, LS_ROW_F32, e.classes, BATCH, e.weights);
        if (r.number == COOL_AFTER) trainer.set_lr(0.002);
        if (r.number % 20 == 0) publish(trainer);
    }
    trainer.save(file);
    stop = true;
    for (auto &t : threads) t.join();
    auto &all = s[0].seconds;
    all.insert(all.end(), s[1].seconds.begin(), s[1].seconds.end());
    std::sort(all.begin(), all.end());
    std::printf("learner_steps_total %.0f\nlearner_loss %g\nlearner_rate %g\nlearner_recall %g\n",
                double(r.number), r.loss, r.lr,
                double(s[0].caught + s[1].caught) / std::max(1, s[0].positive + s[1].positive));
    for (double q : {0.5, 0.99, 0.999})
        std::printf("learner_predict_seconds{quantile=\"%g\"} %g\n", q,
                    all.empty() ? 0 : all[size_t(q * double(all.size() - 1))]);
    std::printf("learner_predict_seconds_count %zu\n", all.size());
} catch (const lockstep::error &e) {
    std::fprintf(stderr, "learner: %s (%s)\n", e.what(), ls_status_name(e.status));
    return 1;
}
