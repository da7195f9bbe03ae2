// An allocator of cores that answers planned requests from one arena and all others from torch's.
//
// A step is a row of sections (a layer's forward or backward, or what lies between), each a list of
// requests with sizes and offsets. The n-th request of the thread that began a pass is given the
// n-th address of its section, if it has the planned size and nothing alive lies there. One more or
// one less than planned is passed over; the next section begins anew. Anything else (another size,
// another thread, outside passes, an offset below 0) goes to torch's own allocator and is counted,
// so that no plan, however wrong, makes two live tensors share a byte.
//
// A communication library's thread may release a buffer a moment late. So the first request after
// a planned end waits for what still lives, up to kWait, and only so often in vain: later, when the
// address is needed again, the thread may be kept by a lock of the very collective that asks.
//
// While recording, births, deaths and marks are logged in order, and all memory is torch's own. Each
// request of a pass then waits a little, so that other threads release first what they no longer use.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

struct Planned {
  int64_t bytes;
  int64_t offset;
  int64_t until;  // number of the first request that is made after its end
};

struct Region {
  char* base = nullptr;
  size_t bytes = 0;
  bool retired = false;
  std::map<size_t, size_t> live;  // offset -> end

  explicit Region(size_t size) : bytes(size) {
    void* found = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base = found == MAP_FAILED ? nullptr : static_cast<char*>(found);
  }
  ~Region() {
    if (base != nullptr) munmap(base, bytes);
  }
  bool holds(const void* pointer) const {
    const char* place = static_cast<const char*>(pointer);
    return base != nullptr && place >= base && place < base + bytes;
  }
  bool take(size_t offset, size_t size) {
    const size_t end = offset + size;
    if (end > bytes) return false;
    auto after = live.lower_bound(offset);
    if (after != live.end() && after->first < end) return false;
    if (after != live.begin() && std::prev(after)->second > offset) return false;
    live.emplace(offset, end);
    return true;
  }
};

struct Counts {
  int64_t served = 0;      // from the arena
  int64_t lasting = 0;     // planned to be torch's own, for they outlive the step
  int64_t extra = 0;       // not the next planned one of its section
  int64_t occupied = 0;    // of the planned size, where something lives yet
  int64_t missing = 0;     // planned ones that their section did not ask for
  int64_t waited = 0;      // ends that another thread was waited for
  int64_t other = 0;       // outside passes, or of other threads
};

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return own_->allocate(size);
    if (recording_ && inside_) std::this_thread::sleep_for(kPause);
    {
      std::unique_lock<std::mutex> lock(mutex_);
      if (void* place = planned_place(size, lock)) return {place, place, &release, c10::kCPU};
    }
    c10::DataPtr own = own_->allocate(size);
    void* place = own.get();
    const bool is_plain = own.get_context() == place;
    if (!recording_ || !is_plain) return own;
    own.release_context();
    {
      std::lock_guard<std::mutex> guard(mutex_);
      note_birth(place, size);
    }
    return {place, place, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    std::memcpy(to, from, count);
  }

  bool install() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (own_ == nullptr) own_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(this, kPriority);
    return c10::GetCPUAllocator() == this;
  }
  void remove() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (own_ != nullptr) c10::SetCPUAllocator(own_, kPriority);
  }
  bool plan(int64_t passes, const int64_t* first_sections, int64_t sections, const int64_t* starts,
            const int64_t* sizes, const int64_t* offsets, const int64_t* untils,
            int64_t arena_bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    retire();
    counts_ = Counts();
    patience_ = kPatience;
    passes_.assign(first_sections, first_sections + passes);
    starts_.assign(starts, starts + sections + 1);
    planned_.clear();
    ended_.assign(static_cast<size_t>(starts_.back()) + 1, {});
    for (int64_t n = 0; n < starts_.back(); ++n) {
      planned_.push_back({sizes[n], offsets[n], untils[n]});
      if (offsets[n] >= 0) ended_[untils[n]].push_back(n);
    }
    if (arena_bytes == 0) return true;
    auto region = std::make_unique<Region>(static_cast<size_t>(arena_bytes));
    if (region->base == nullptr) return false;
    regions_.push_back(std::move(region));
    return true;
  }
  void forget() {
    std::lock_guard<std::mutex> guard(mutex_);
    retire();
    planned_.clear();
    passes_.clear();
    starts_.assign(1, 0);
  }
  void begin(int64_t pass) {
    std::lock_guard<std::mutex> guard(mutex_);
    pass_ = pass;
    inside_ = true;
    owner_ = std::this_thread::get_id();
    note({kBegin, pass, 0, 0});
    const bool is_known = pass >= 0 && pass < static_cast<int64_t>(passes_.size());
    enter(is_known ? passes_[pass] : static_cast<int64_t>(starts_.size()));
  }
  void mark() {
    std::lock_guard<std::mutex> guard(mutex_);
    note({kMark, pass_, 0, 0});
    counts_.missing += end_ - next_;
    enter(section_ + 1);
  }
  void end() {
    std::lock_guard<std::mutex> guard(mutex_);
    note({kEnd, pass_, 0, 0});
    counts_.missing += end_ - next_;
    next_ = end_ = 0;
    inside_ = false;
  }
  Counts counts() {
    std::lock_guard<std::mutex> guard(mutex_);
    return counts_;
  }
  int64_t resident_bytes() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (regions_.empty() || regions_.back()->retired) return 0;
    Region& region = *regions_.back();
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((region.bytes + page - 1) / page);
    if (mincore(region.base, region.bytes, pages.data()) != 0) return -1;
    int64_t resident = 0;
    for (unsigned char entry : pages) resident += (entry & 1) ? static_cast<int64_t>(page) : 0;
    return resident;
  }
  void record(bool on) {
    std::lock_guard<std::mutex> guard(mutex_);
    recording_ = on;
    if (on) {
      log_.clear();
      births_.clear();
    }
  }
  int64_t log(int64_t* to) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (to != nullptr) std::copy(log_.begin(), log_.end(), to);
    return static_cast<int64_t>(log_.size());
  }

 private:
  static constexpr uint8_t kPriority = 200;
  static constexpr std::chrono::milliseconds kWait{50};
  static constexpr std::chrono::microseconds kGlance{20};
  static constexpr int kPatience = 64;
  static constexpr std::chrono::microseconds kPause{200};
  enum : int64_t { kBegin, kEnd, kMark, kBirth, kBirthElsewhere, kDeath, kDeathElsewhere };
  static void release(void* place);

  void enter(int64_t section) {
    section_ = section;
    const bool is_known = section >= 0 && section + 1 < static_cast<int64_t>(starts_.size());
    next_ = is_known ? starts_[section] : 0;
    end_ = is_known ? starts_[section + 1] : 0;
  }
  void* planned_place(size_t size, std::unique_lock<std::mutex>& lock) {
    if (!inside_) {
      ++counts_.other;
      return nullptr;
    }
    const auto is_next = [&](int64_t place) {
      return place < end_ && planned_[place].bytes == static_cast<int64_t>(size);
    };
    if (!is_next(next_)) {
      if (!is_next(next_ + 1)) {
        ++counts_.extra;
        return nullptr;
      }
      ++counts_.missing;
      ++next_;
    }
    wait_for_ended(next_, lock);
    const Planned request = planned_[next_++];
    if (request.offset < 0) {
      ++counts_.lasting;
      return nullptr;
    }
    Region& region = *regions_.back();
    const size_t offset = static_cast<size_t>(request.offset);
    if (!region.take(offset, size) && !take_later(region, offset, size, lock)) {
      ++counts_.occupied;
      return nullptr;
    }
    ++counts_.served;
    return region.base + offset;
  }
  bool take_later(Region& region, size_t offset, size_t size, std::unique_lock<std::mutex>& lock) {
    const bool is_taken = wait(lock, [&] { return region.take(offset, size); });
    counts_.waited += is_taken ? 1 : 0;
    return is_taken;
  }
  void wait_for_ended(int64_t request, std::unique_lock<std::mutex>& lock) {
    const Region& region = *regions_.back();
    for (int64_t ended : ended_[request]) {
      const size_t offset = static_cast<size_t>(planned_[ended].offset);
      const auto is_gone = [&] { return region.live.count(offset) == 0; };
      if (!is_gone() && wait(lock, is_gone)) ++counts_.waited;
    }
  }
  template <typename Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Condition& is_met) {
    if (patience_ == 0) return false;
    const auto until = std::chrono::steady_clock::now() + kWait;
    while (std::chrono::steady_clock::now() < until) {
      lock.unlock();
      std::this_thread::sleep_for(kGlance);  // a spinning thread would keep the lock from others
      lock.lock();
      if (is_met()) return true;
    }
    --patience_;
    return false;
  }
  void free_block(void* place) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      note_death(place);
      for (auto entry = regions_.begin(); entry != regions_.end(); ++entry) {
        Region& region = **entry;
        if (!region.holds(place)) continue;
        region.live.erase(static_cast<size_t>(static_cast<char*>(place) - region.base));
        if (region.retired && region.live.empty()) regions_.erase(entry);
        return;
      }
    }
    own_->raw_deleter()(place);
  }
  void retire() {
    for (auto& region : regions_) region->retired = true;
    regions_.erase(std::remove_if(regions_.begin(), regions_.end(),
                                  [](const auto& region) { return region->live.empty(); }),
                   regions_.end());
    next_ = end_ = 0;
  }
  void note(std::initializer_list<int64_t> event) {
    if (recording_) log_.insert(log_.end(), event);
  }
  void note_birth(void* place, size_t size) {
    births_[place] = ++born_;
    note({inside_ ? kBirth : kBirthElsewhere, pass_, born_, static_cast<int64_t>(size)});
  }
  void note_death(void* place) {
    auto found = births_.find(place);
    if (found == births_.end()) return;
    const bool is_foreign = std::this_thread::get_id() != owner_;
    note({is_foreign ? kDeathElsewhere : kDeath, pass_, found->second, 0});
    births_.erase(found);
  }

  c10::Allocator* own_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Region>> regions_;
  std::atomic<bool> recording_{false};
  std::vector<Planned> planned_;
  std::vector<std::vector<int64_t>> ended_;  // by request, those that ended since the one before
  std::vector<int64_t> passes_;     // first section of each pass
  std::vector<int64_t> starts_{0};  // first request of each section, and the number of all
  int64_t section_ = 0;
  int patience_ = 0;
  int64_t next_ = 0;
  int64_t end_ = 0;
  int64_t pass_ = -1;
  Counts counts_;
  int64_t born_ = 0;
  std::thread::id owner_;
  std::vector<int64_t> log_;
  std::unordered_map<void*, int64_t> births_;
  static thread_local bool inside_;
};

thread_local bool ArenaAllocator::inside_ = false;

ArenaAllocator& allocator() {
  static ArenaAllocator* only = new ArenaAllocator;  // never destroyed: tensors outlive everything
  return *only;
}

void ArenaAllocator::release(void* place) { allocator().free_block(place); }

}  // namespace

extern "C" {
int arena_install() { return allocator().install() ? 1 : 0; }
void arena_remove() { allocator().remove(); }
int arena_plan(int64_t passes, const int64_t* first_sections, int64_t sections,
               const int64_t* starts, const int64_t* sizes, const int64_t* offsets,
               const int64_t* untils, int64_t bytes) {
  const bool is_taken = allocator().plan(passes, first_sections, sections, starts, sizes, offsets,
                                         untils, bytes);
  return is_taken ? 1 : 0;
}
void arena_forget() { allocator().forget(); }
void arena_begin(int64_t pass) { allocator().begin(pass); }
void arena_end() { allocator().end(); }
void arena_mark() { allocator().mark(); }
void arena_counts(int64_t* to) {
  const Counts counts = allocator().counts();
  const int64_t values[] = {counts.served,  counts.lasting, counts.extra, counts.occupied,
                            counts.missing, counts.waited,  counts.other};
  std::copy(std::begin(values), std::end(values), to);
}
int64_t arena_resident_bytes() { return allocator().resident_bytes(); }
void arena_record(int on) { allocator().record(on != 0); }
int64_t arena_log(int64_t* to) { return allocator().log(to); }
}
