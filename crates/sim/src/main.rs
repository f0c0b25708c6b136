fn main() {
    for seed in std::env::args().skip(1) {
        let report = towline_sim::run(seed.parse().unwrap_or(0), true);
        println!("{report:?}");
    }
}
