// SPDX-License-Identifier: MIT
// A learner that runs for months: it learns from events of 12 features, 3 % of which are positive,
// and predicts in two threads meanwhile. Every 100 steps it saves its state and prints metrics in
// Prometheus' text format. Started again, also after a crash, it goes on with what its file keeps:
// the weights, the scales of the features, the optimizer's state and the learning rate.
//
//     c++ -std=c++17 embed_learner.cpp -pthread $(pkg-config --cflags --libs lockstep) -o learner
//     ./learner learner.safetensors 400        # 400 steps; without the number, until SIGTERM
#include <lockstep/lockstep.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <random>

enum { FEATURES = 12, BATCH = 256, COOL_AFTER = 300, PUBLISH_EVERY = 20, SAVE_EVERY = 100 };
static const char config[] = R"({
    "data": {"name": "events", "standardize": true, "scale_rows": 4096}, "batch_size": 256,
    "model": {"layers": [{"type": "dense", "out": 32}, {"type": "relu"}, {"type": "dense"}]},
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

// Bucket i counts predictions of at most 0.5 µs · 2^(i / 4); the last one counts all longer ones.
enum { BUCKETS = 72 };
static std::atomic<uint64_t> buckets[BUCKETS + 1], nanoseconds, positives, caught;
static void print_metrics(const ls_step_result &r)
{
    std::printf("learner_steps_total %.0f\nlearner_loss %g\nlearner_rate %g\n"
                "learner_positives_total %.0f\nlearner_caught_total %.0f\n"
                "# TYPE learner_predict_seconds histogram\n",
                double(r.number), r.loss, r.lr, double(positives), double(caught));
    double sum = 0;
    for (int i = 0; i <= BUCKETS; i++) {
        char end[32] = "+Inf";
        if (i < BUCKETS) std::snprintf(end, sizeof end, "%.4g", 5e-7 * std::exp2(i / 4.0));
        sum += double(buckets[i]);
        std::printf("learner_predict_seconds_bucket{le=\"%s\"} %.0f\n", end, sum);
    }
    std::printf("learner_predict_seconds_sum %g\nlearner_predict_seconds_count %.0f\n\n",
                double(nanoseconds) / 1e9, sum);
    std::fflush(stdout);
}

static std::shared_ptr<lockstep::model> newest; // read and replaced as a whole
static std::atomic<bool> stop;
static void serve(unsigned seed) noexcept // predicts event by event; an error ends the program
{
    std::mt19937 random(seed);
    events e;
    for (int i = 0; !stop; i = (i + 1) % BATCH) {
        if (i == 0) e.draw(random);
        const auto start = std::chrono::steady_clock::now();
        const auto p = std::atomic_load(&newest)->predict(e.rows[i], LS_ROW_F32);
        const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
        const double bucket = std::ceil(4 * std::log2(std::max(1.0, double(took.count()) / 500)));
        buckets[std::min(int(bucket), int{BUCKETS})]++;
        nanoseconds += uint64_t(took.count());
        positives += e.classes[i] == 1;
        caught += e.classes[i] == 1 && p[1] > 0.5f;
    }
}

int main(int argc, char **argv)
try {
    const char *file = argc > 1 ? argv[1] : "learner.safetensors";
    long left = argc > 2 ? std::atol(argv[2]) : 0; // 0: until SIGTERM
    auto source = lockstep::sized<ls_data_source>();
    source.name = "events";
    source.channels = FEATURES;
    source.row_type = LS_ROW_F32;
    source.classes = 2;
    source.height = source.width = source.streamed = source.weighted = 1;
    lockstep::trainer trainer(config, source);
    if (std::filesystem::exists(file)) trainer.load(file);
    newest = std::make_shared<lockstep::model>(trainer.model());
    std::signal(SIGTERM, [](int) { stop = true; });
    std::future<void> servers[2]; // their destructors wait for the threads, which this one ends:
    const std::shared_ptr<void> at_the_end(nullptr, [](void *) { stop = true; });
    for (unsigned i = 0; i < 2; i++) servers[i] = std::async(std::launch::async, serve, i);
    std::mt19937 random(static_cast<unsigned>(trainer.result().steps) + 3);
    events e;
    for (bool last = false; !last;) {
        e.draw(random);
        const auto r = trainer.step(e.rows, LS_ROW_F32, e.classes, BATCH, e.weights);
        last = --left == 0 || stop;
        if (r.number == COOL_AFTER) trainer.set_lr(0.002);
        if (r.number % PUBLISH_EVERY == 0)
            std::atomic_store(&newest, std::make_shared<lockstep::model>(trainer.model()));
        if (r.number % SAVE_EVERY == 0 || last) {
            trainer.save(file);
            print_metrics(r);
        }
    }
} catch (const std::exception &e) {
    std::fprintf(stderr, "learner: %s\n", e.what());
    return 1;
}
