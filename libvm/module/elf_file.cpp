#include "module/elf_file.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

namespace outpost::vm {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Dynamic = ElfW(Dyn);
using Symbol = ElfW(Sym);

struct MachineName {
  std::uint16_t machine;
  const char* name;
};
constexpr std::array kMachines{
    MachineName{EM_X86_64, "x86-64"},   MachineName{EM_386, "x86"},
    MachineName{EM_AARCH64, "AArch64"}, MachineName{EM_ARM, "ARM"},
    MachineName{EM_RISCV, "RISC-V"},    MachineName{EM_PPC64, "PowerPC"},
    MachineName{EM_S390, "S/390"},      MachineName{EM_MIPS, "MIPS"},
    MachineName{EM_QDSP6, "Hexagon"},   MachineName{258, "LoongArch"},
};

Error malformed(std::string text) {
  return Error{Code::malformed, std::move(text)};
}

/// A native ELF file, read with bounds. Addresses are those of the loaded image; the segments say
/// which bytes of the file they are.
class ElfReader {
 public:
  explicit ElfReader(Bytes file) : file_{file} {}

  template <class T>
  Result<T> at(std::uint64_t offset, std::string_view what) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (offset > file_.size() || file_.size() - offset < sizeof(T))
      return malformed(fmt::format("file cut short: {} at byte {} needs {} bytes, the file has {}",
                                   what, offset, sizeof(T), file_.size()));
    T out;
    std::memcpy(&out, file_.data() + offset, sizeof out);
    return out;
  }

  Result<> read_segments(const Header& header) {
    if (header.e_phentsize != sizeof(Segment))
      return malformed(fmt::format("program header of {} bytes", header.e_phentsize));
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      OUTPOST_TRY(const auto s, at<Segment>(header.e_phoff + std::uint64_t{i} * sizeof(Segment),
                                            "program header"));
      if (s.p_type != PT_LOAD && s.p_type != PT_DYNAMIC) continue;
      if (s.p_offset > file_.size() || s.p_filesz > file_.size() - s.p_offset)
        return malformed(fmt::format("file cut short: segment {} ends at byte {}, the file has {}",
                                     i, s.p_offset + s.p_filesz, file_.size()));
      (s.p_type == PT_LOAD ? loads_ : dynamics_).push_back(s);
    }
    if (dynamics_.size() != 1)
      return malformed(fmt::format("{} dynamic sections instead of one", dynamics_.size()));
    return {};
  }

  /// All bytes of the file from an address to the end of its segment.
  Result<Bytes> from_address(std::uint64_t address, std::string_view what) const {
    for (const auto& s : loads_)
      if (address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz) {
        const auto skip = address - s.p_vaddr;
        return file_.subspan(s.p_offset + skip, s.p_filesz - skip);
      }
    return malformed(fmt::format("{} at address 0x{:x}, which no segment holds", what, address));
  }

  Bytes dynamic() const {
    return file_.subspan(dynamics_.front().p_offset, dynamics_.front().p_filesz);
  }

 private:
  Bytes file_;
  std::vector<Segment> loads_;
  std::vector<Segment> dynamics_;
};

template <class T>
Result<T> element(Bytes table, std::uint64_t index, std::string_view what) {
  if (index >= table.size() / sizeof(T))
    return malformed(fmt::format("{} {} lies outside its segment", what, index));
  T out;
  std::memcpy(&out, table.data() + index * sizeof(T), sizeof out);
  return out;
}

struct DynamicTables {
  std::uint64_t symbols = 0;
  std::uint64_t strings = 0;
  std::uint64_t string_bytes = 0;
  std::uint64_t hash = 0;
  std::uint64_t gnu_hash = 0;
  std::vector<std::uint64_t> needed;
};

DynamicTables read_dynamic(Bytes section) {
  DynamicTables out;
  for (std::size_t i = 0; i < section.size() / sizeof(Dynamic); ++i) {
    Dynamic entry;
    std::memcpy(&entry, section.data() + i * sizeof entry, sizeof entry);
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_SYMTAB) out.symbols = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRTAB) out.strings = entry.d_un.d_ptr;
    if (entry.d_tag == DT_STRSZ) out.string_bytes = entry.d_un.d_val;
    if (entry.d_tag == DT_HASH) out.hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_GNU_HASH) out.gnu_hash = entry.d_un.d_ptr;
    if (entry.d_tag == DT_NEEDED) out.needed.push_back(entry.d_un.d_val);
  }
  return out;
}

/// The last symbol of the largest bucket's chain is the last of all (its word has bit 0 set).
Result<std::uint64_t> gnu_symbol_count(Bytes table) {
  OUTPOST_TRY(const auto buckets, element<std::uint32_t>(table, 0, "hash table word"));
  OUTPOST_TRY(const auto first, element<std::uint32_t>(table, 1, "hash table word"));
  OUTPOST_TRY(const auto filter_words, element<std::uint32_t>(table, 2, "hash table word"));
  const std::uint64_t bucket_start =
      4 + std::uint64_t{filter_words} * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  std::uint64_t last = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) {
    OUTPOST_TRY(const auto head, element<std::uint32_t>(table, bucket_start + i, "hash bucket"));
    last = std::max<std::uint64_t>(last, head);
  }
  if (last < first) return std::uint64_t{first};
  for (;; ++last) {
    OUTPOST_TRY(const auto word, element<std::uint32_t>(
                                     table, bucket_start + buckets + (last - first), "hash chain"));
    if ((word & 1U) != 0) return last + 1;
  }
}

Result<std::uint64_t> symbol_count(const ElfReader& elf, const DynamicTables& tables) {
  if (tables.hash != 0) {
    OUTPOST_TRY(const auto table, elf.from_address(tables.hash, "hash table"));
    OUTPOST_TRY(const auto count, element<std::uint32_t>(table, 1, "hash table word"));
    return std::uint64_t{count};
  }
  if (tables.gnu_hash == 0) return malformed("no hash table, so no symbols can be found");
  OUTPOST_TRY(const auto table, elf.from_address(tables.gnu_hash, "hash table"));
  return gnu_symbol_count(table);
}

Result<std::string_view> text_at(Bytes strings, std::uint64_t offset) {
  if (offset >= strings.size()) return malformed(fmt::format("name at byte {} of none", offset));
  const auto rest = as_text(strings.subspan(offset));
  const auto end = rest.find('\0');
  if (end == std::string_view::npos) return malformed("name without an end");
  return rest.substr(0, end);
}

Result<LibraryFacts> read_facts(const ElfReader& elf) {
  const auto tables = read_dynamic(elf.dynamic());
  LibraryFacts facts;
  OUTPOST_TRY(auto strings, elf.from_address(tables.strings, "string table"));
  strings = strings.first(std::min<std::uint64_t>(strings.size(), tables.string_bytes));
  for (const auto offset : tables.needed) {
    OUTPOST_TRY(const auto name, text_at(strings, offset));
    facts.needed.push_back(name);
  }
  OUTPOST_TRY(const auto count, symbol_count(elf, tables));
  OUTPOST_TRY(const auto symbols, elf.from_address(tables.symbols, "symbol table"));
  for (std::uint64_t i = 1; i < count; ++i) {
    OUTPOST_TRY(const auto symbol, element<Symbol>(symbols, i, "symbol"));
    OUTPOST_TRY(const auto name, text_at(strings, symbol.st_name));
    // ELF32 and ELF64 keep binding and type in the same bits.
    if (symbol.st_shndx == SHN_UNDEF) {
      if (ELF64_ST_BIND(symbol.st_info) != STB_WEAK && !name.empty())
        facts.undefined.push_back(name);
    } else if (name == "__tvm_ffi__library_bin") {
      OUTPOST_TRY(auto bin, elf.from_address(symbol.st_value, "__tvm_ffi__library_bin"));
      if (symbol.st_size != 0) bin = bin.first(std::min<std::uint64_t>(bin.size(), symbol.st_size));
      facts.library_bin = bin;
    }
  }
  return facts;
}

}  // namespace

Architecture own_architecture() {
#if defined(__x86_64__)
  constexpr std::uint16_t machine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr std::uint16_t machine = EM_AARCH64;
#elif defined(__arm__)
  constexpr std::uint16_t machine = EM_ARM;
#elif defined(__riscv)
  constexpr std::uint16_t machine = EM_RISCV;
#elif defined(__i386__)
  constexpr std::uint16_t machine = EM_386;
#else
#error "add this machine's ELF number"
#endif
  return {machine, static_cast<int>(8 * sizeof(void*)), std::endian::native == std::endian::little};
}

std::string describe(const Architecture& a) {
  std::string name = fmt::format("machine {}", a.machine);
  for (const auto& known : kMachines)
    if (known.machine == a.machine) name = known.name;
  return fmt::format("{} ({}-bit{})", name, a.bits, a.little_endian ? "" : ", big-endian");
}

Result<LibraryFacts> inspect_library(Bytes file) {
  if (file.empty()) return malformed("the file is empty");
  const auto text = as_text(file);
  if (!text.starts_with("\177ELF")) return malformed("not a shared library: no ELF header");
  if (file.size() < EI_NIDENT + 4) return malformed("file cut short inside the ELF header");
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(file[i]); };
  const bool little = byte(EI_DATA) != ELFDATA2MSB;
  const auto half = [&](std::size_t i) {
    return static_cast<std::uint16_t>(little ? byte(i) | byte(i + 1) << 8
                                             : byte(i) << 8 | byte(i + 1));
  };
  const Architecture found{half(18), byte(EI_CLASS) == ELFCLASS32 ? 32 : 64, little};
  if (found != own_architecture())
    return Error{Code::unsupported,
                 fmt::format("wrong architecture: the file is for {}, this machine is {}",
                             describe(found), describe(own_architecture()))};
  if (half(16) == ET_REL)
    return Error{Code::unsupported, "an object file, not a shared library; give it the ending .o"};
  if (half(16) != ET_DYN)
    return Error{Code::unsupported, fmt::format("not a shared library: ELF type {}", half(16))};
  ElfReader elf{file};
  OUTPOST_TRY(const auto header, elf.at<Header>(0, "ELF header"));
  OUTPOST_CHECK(elf.read_segments(header));
  return read_facts(elf);
}

}  // namespace outpost::vm
