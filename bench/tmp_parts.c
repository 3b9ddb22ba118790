#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <time.h>
#include "ops/attention/attention_core.h"
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec+1e-9*t.tv_nsec;}
#define TIME(name,work,unit,expr) do{double best=1e9;for(int r=0;r<3000;r++){double zz=now();expr;zz=now()-zz;if(zz<best)best=zz;}printf("%-20s %9.0f ns %8.0f cycles %7.1f %s\n",name,best*1e9,best*3.69e9,(work)/best*1e-9,unit);}while(0)
int main(int argc,char**argv){
 const sn_attention_isa*isa=argc>1?&sn_attention_isa_avx2:&sn_attention_isa_avx512;
 float *a=aligned_alloc(64,1<<20),*b=aligned_alloc(64,1<<20),*c=aligned_alloc(64,1<<20),*o=aligned_alloc(64,1<<20);
 for(int i=0;i<1<<18;i++)a[i]=b[i]=o[i]=0.01f*(i%37),c[i]=(i%91)*.02f;
 float m[64],l[64],d[64]; int lo[64],hi[64]; for(int i=0;i<64;i++)m[i]=-1e9,l[i]=0,lo[i]=0,hi[i]=1000,d[i]=.1f;
 TIME("gemm 60x64x64",2.*60*64*64,"GF",isa->gemm(60,64,64,a,64,1,b,64,c,64,false));
 TIME("gemm 64x64x64",2.*64*64*64,"GF",isa->gemm(64,64,64,a,64,1,b,64,c,64,false));
 TIME("gemm add",2.*64*64*64,"GF",isa->gemm(64,64,64,a,64,1,b,64,c,64,true));
 TIME("gemm T add",2.*64*64*64,"GF",isa->gemm(64,64,64,a,1,64,b,64,c,64,true));
 TIME("gemm 3x64x64",2.*3*64*64,"GF",isa->gemm(3,64,64,a,64,1,b,64,c,64,false));
 for(int i=0;i<1<<18;i++)c[i]=(i%91)*.02f;
 TIME("softmax 64x64",64.*64,"Gel",(isa->softmax(64,64,.1f,lo,hi,c,m,l,o,64)));
 TIME("backward 64x64",64.*64,"Gel",(isa->backward(64,64,.1f,.1f,lo,hi,m,d,c,o)));
 const void*rows[64]; for(int i=0;i<64;i++)rows[i]=a+i*192;
 TIME("load 64x64",64.*64*4,"GB/s",isa->load(SN_F32,rows,64,64,64,b));
 TIME("load_t 64x64",64.*64*4,"GB/s",isa->load_transposed(SN_F32,rows,64,64,b));
 TIME("load_t bf16",64.*64*2,"GB/s",isa->load_transposed(SN_BF16,rows,64,64,b));
 TIME("load_t f16",64.*64*2,"GB/s",isa->load_transposed(SN_F16,rows,64,64,b));
 TIME("join 64x64",64.*64*4,"GB/s",isa->join(64,64,m,l,o,d,l,a));
 const void*k[64],*v[64]; sn_attention_keys keys={.k=(char*)a,.v=(char*)b,.stride=768,.v_stride=768};
 TIME("rows",64.,"",sn_attention_key_rows(&keys,0,64,k,v));
 int32_t table[10]={0}; keys.table=table;keys.n_table=10;keys.n_blocks=3;keys.block_tokens=64;
 TIME("rows paged",64.,"",sn_attention_key_rows(&keys,0,64,k,v));
}
