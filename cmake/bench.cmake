# Benchmark programs; not built by default. `cmake --build --preset release --target gemm_bench`
file(GLOB BENCH_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*_bench.c)
foreach(file IN LISTS BENCH_SOURCES)
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${file})
  target_link_libraries(${name} PRIVATE snug_static)
endforeach()
